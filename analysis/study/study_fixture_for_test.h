// Runs the study's binary from its command line to its exit code, with trainers
// that only write records (fake_trainer_for_test.cc).
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_FIXTURE_FOR_TEST_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_FIXTURE_FOR_TEST_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "analysis/text/shell_for_test.h"

namespace rankwise {

class StudyTest : public testing::Test {
 protected:
  // A new folder with trainers/, where single, ddp, model_parallel, pipeline
  // and comm_bench are the fake one, and bare/, where all but comm_bench are.
  StudyTest();

  // The study's command line, started in root(); 2 threads per rank would ask
  // for more cores than a small machine has. Output goes to out/; the last of a
  // flag counts.
  std::string CommandLine(const std::string& flags) const;
  Outcome Study(const std::string& flags) const;
  // The same with nothing but the stand-ins and `flags`. Neither writes a
  // report, but for --report.
  Outcome BareStudy(const std::string& flags) const;

  // Files in out/ that end like this.
  int CountRecords(const std::string& extension) const;
  std::string ReadFile(const std::string& path) const;  // in root()
  void WriteFile(const std::string& path, const std::string& text) const;

  const std::filesystem::path& root() const { return root_; }

 private:
  const std::filesystem::path root_;
};

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FIXTURE_FOR_TEST_H_
