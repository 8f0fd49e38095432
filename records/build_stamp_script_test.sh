#!/usr/bin/env bash
# Tests build_stamp.sh in a tarball and in a repository, with modified and committed sources.
set -euo pipefail
script="$PWD/records/build_stamp.sh"
export HOME="$TEST_TMPDIR" GIT_CONFIG_NOSYSTEM=1 GIT_CEILING_DIRECTORIES="$TEST_TMPDIR"

fail() {
  echo "FAILED: $1" >&2
  exit 1
}
value() { "$script" | sed -n "s/^$1 //p"; }
hash_of() { value STABLE_RANKWISE_SOURCE_HASH; }

mkdir "$TEST_TMPDIR/tree"
cd "$TEST_TMPDIR/tree"
mkdir records samplers parallel trainers comm_bench third_party docs
echo 'int main() {}' >trainers/ddp.cc
echo 'text' | tee docs/metrics.md trainers/notes.md trainers/ddp_test.cc >WORKSPACE
touch .bazelrc

# A tarball: the sources are known, the commit is not.
first="$(hash_of)"
[[ "$first" =~ ^[0-9a-f]{16}$ ]] || fail "a tarball's hash is \"$first\""
[[ -z "$(value RANKWISE_GIT_COMMIT)$(value RANKWISE_GIT_STATE)" ]] || fail "a tarball has a commit"

git init -q
git config user.name test
git config user.email test@example.com
[[ -z "$(value RANKWISE_GIT_COMMIT)" ]] || fail "a repository without a commit has one"
git add -A
git commit -qm one
one="$(git rev-parse HEAD)"
[[ "$(hash_of)" == "$first" ]] || fail "committing changed the hash"
[[ "$(value RANKWISE_GIT_COMMIT) $(value RANKWISE_GIT_STATE)" == "$one clean" ]] || fail "not the clean commit"

# Files that no binary is built from.
echo 'more' | tee -a docs/metrics.md trainers/notes.md >trainers/ddp_test.cc
[[ "$(hash_of)" == "$first" ]] || fail "documents and tests changed the hash"

echo 'int main() { return 1; }' >trainers/ddp.cc
second="$(hash_of)"
[[ "$second" =~ ^[0-9a-f]{16}$ && "$second" != "$first" ]] || fail "an edit did not change the hash"
[[ "$(value RANKWISE_GIT_COMMIT) $(value RANKWISE_GIT_STATE)" == "$one modified" ]] || fail "an edit is not told"
git commit -qam two
[[ "$(hash_of)" == "$second" && "$(value RANKWISE_GIT_STATE)" == clean ]] || fail "committing the edit changed the hash"
echo 'int x;' >samplers/new.cc
[[ "$(hash_of)" != "$second" && "$(value RANKWISE_GIT_STATE)" == modified ]] || fail "a new file is not told"
rm samplers/new.cc
[[ "$(hash_of)" == "$second" ]] || fail "the same sources have another hash"

# Inside another repository, and with missing sources.
mkdir -p sub && cp -r records samplers parallel trainers comm_bench third_party WORKSPACE .bazelrc sub/
(cd sub && [[ "$(hash_of)" == "$second" && -z "$(value RANKWISE_GIT_COMMIT)" ]]) || fail "a copy inside a repository is of its commit"
rm -r sub/trainers
(cd sub && [[ -z "$(hash_of)" ]] && "$script") || fail "half of the sources have a hash"
echo "PASS"
