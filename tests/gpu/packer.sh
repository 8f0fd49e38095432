#!/usr/bin/env bash
# packer.sh MANIFEST RUN CONFIGURATION ARCHIVE: lays out the files of the manifest (pack.bzl) and archives them.
set -euo pipefail
manifest="$1" run="$2" configuration="$3" archive="$4"

staging="$(mktemp -d)"
trap 'rm -rf "$staging"' EXIT
root="$staging/rankwise"
mkdir -p "$root/lib"

# Debian's own shared libraries, including Abseil's, are packed; the C and C++ runtimes and PyTorch's libraries are the machine's.
bring_libraries() {
  local name path
  while read -r name path; do
    case "$name" in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | libstdc++.so.* | libgcc_s.so.*) ;;
      *) [[ -e "$root/lib/$name" ]] || cp -L "$path" "$root/lib/$name" ;;
    esac
  done < <(ldd "$1" | awk '$2 == "=>" && $3 ~ "^/(usr/)?lib" { print $1, $3 }')
}

while IFS=$'\t' read -r kind name path; do
  target="$root/$name"
  [[ "$kind" == data ]] || printf '%s\t%s\n' "$kind" "$name" >>"$root/contents"
  [[ -e "$target" ]] && continue
  mkdir -p "$(dirname "$target")"
  cp -L "$path" "$target"
  chmod u+w "$target"
  [[ "$(head -c 4 "$target" | tr -d '\0')" == $'\x7fELF' ]] || continue
  if readelf -d "$target" | grep -q '(RPATH)'; then
    echo "packer: $name has an RPATH, which LD_LIBRARY_PATH could not override" >&2
    exit 1
  fi
  bring_libraries "$target"
  strip --strip-all "$target"
done <"$manifest"

printf 'configuration\t%s\n' "$configuration" >>"$root/contents"
cp "$run" "$root/run"
chmod 0755 "$root/run"
tar --create --directory="$staging" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 rankwise |
  xz --threads=0 -6 >"$archive"
