// Runs the study's binary through its command line, with fake trainers that
// only write records (fake_trainer_for_test.cc).
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_FIXTURE_FOR_TEST_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_FIXTURE_FOR_TEST_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "analysis/text/shell_for_test.h"

namespace rankwise {

class StudyTest : public testing::Test {
 protected:
  // Creates a new folder with trainers/, which contains the fake as single,
  // ddp, model_parallel, pipeline and comm_bench, and bare/, which lacks
  // comm_bench.
  StudyTest();

  // Returns the study's command line, started in root() with 1 thread per rank,
  // as small machines lack cores for 2. Output goes to out/; the last value of
  // a flag wins.
  std::string CommandLine(const std::string& flags) const;
  Outcome Study(const std::string& flags) const;
  // Runs the study with only the flags for the fakes, and `flags`. Both
  // functions disable the report unless --report is passed.
  Outcome BareStudy(const std::string& flags) const;

  // Counts the files in out/ with this extension.
  int CountRecords(const std::string& extension) const;
  std::string ReadFile(const std::string& path) const;  // in root()
  void WriteFile(const std::string& path, const std::string& text) const;

  const std::filesystem::path& root() const { return root_; }

 private:
  const std::filesystem::path root_;
};

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FIXTURE_FOR_TEST_H_
