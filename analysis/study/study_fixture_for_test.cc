#include "analysis/study/study_fixture_for_test.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

std::string StudyIn(const fs::path& root) {
  return absl::StrCat(
      "cd ", root.string(), " && exec ",
      (fs::current_path() / "analysis/study/study_for_test").string(),
      " --trainer_dir=trainers --plotly_js=plotly.js --report=false ");
}

}  // namespace

StudyTest::StudyTest()
    : root_(fs::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name()) {
  fs::remove_all(root_);
  const fs::path fake = fs::current_path() / "analysis/study/fake_trainer";
  for (const char* folder : {"trainers", "bare"}) {
    fs::create_directories(root_ / folder);
    for (const char* name :
         {"single", "ddp", "model_parallel", "pipeline", "tensor_parallel",
          "hybrid", "fsdp", "data_parallel"}) {
      fs::create_symlink(fake, root_ / folder / name);
    }
  }
  fs::create_symlink(fake, root_ / "trainers/comm_bench");
  WriteFile("plotly.js", "const Plotly = 'a stand-in';");
}

std::string StudyTest::CommandLine(const std::string& flags) const {
  return absl::StrCat(StudyIn(root_),
                      "--threads=1 --oversubscribe --output_dir=out "
                      "--trainers=single,ddp --ablations=0 --comm_bench=false ",
                      flags, " 2>&1");
}

Outcome StudyTest::Study(const std::string& flags) const {
  return RunShell(CommandLine(flags));
}

Outcome StudyTest::BareStudy(const std::string& flags) const {
  return RunShell(absl::StrCat(StudyIn(root_), flags, " 2>&1"));
}

int StudyTest::CountRecords(const std::string& extension) const {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(root_ / "out")) {
    count += entry.path().extension() == extension;
  }
  return count;
}

std::string StudyTest::ReadFile(const std::string& path) const {
  std::stringstream text;
  text << std::ifstream(root_ / path).rdbuf();
  return text.str();
}

void StudyTest::WriteFile(const std::string& path,
                          const std::string& text) const {
  std::ofstream(root_ / path) << text;
}

}  // namespace rankwise
