#include "records/git_commit.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace rankwise {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

bool IsCommit(absl::string_view text) {
  if (text.size() != 40) return false;
  for (char c : text) {
    if (!absl::ascii_isxdigit(c)) return false;
  }
  return true;
}

// In a linked worktree .git is a file "gitdir: FOLDER", and the refs are in
// the folder that FOLDER/commondir names.
struct GitFolders {
  std::string head, refs;
};

GitFolders FindGitFolders(const std::string& workspace) {
  const std::string dot_git = workspace + "/.git";
  const std::string link = FirstLine(dot_git);
  absl::string_view target = link;
  if (!absl::ConsumePrefix(&target, "gitdir: ")) return {dot_git, dot_git};
  std::string head(target);
  if (head[0] != '/') head = absl::StrCat(workspace, "/", head);
  const std::string common = FirstLine(head + "/commondir");
  if (common.empty()) return {head, head};
  return {head, common[0] == '/' ? common : absl::StrCat(head, "/", common)};
}

std::string FindPackedRef(const std::string& refs, absl::string_view ref) {
  std::ifstream packed(refs + "/packed-refs");
  std::string line;
  while (std::getline(packed, line)) {
    // "<commit> <ref>"; other lines start with '#' or '^'.
    const absl::string_view text = line;
    if (text.size() > 41 && IsCommit(text.substr(0, 40)) &&
        text.substr(41) == ref) {
      return line.substr(0, 40);
    }
  }
  return "";
}

}  // namespace

std::string GitCommit(const std::string& workspace) {
  if (workspace.empty()) return "";
  const GitFolders git = FindGitFolders(workspace);
  const std::string head = FirstLine(git.head + "/HEAD");
  if (IsCommit(head)) return head;
  absl::string_view ref = head;
  if (!absl::ConsumePrefix(&ref, "ref: ")) return "";
  const std::string commit = FirstLine(absl::StrCat(git.refs, "/", ref));
  if (IsCommit(commit)) return commit;
  return FindPackedRef(git.refs, ref);
}

}  // namespace rankwise
