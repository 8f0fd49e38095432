// Tests the binary through its command line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/shell_for_test.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

Outcome FitWith(const std::string& flags) {
  return RunShell(
      absl::StrCat("analysis/cost_model/fit_network ", flags, " 2>&1"));
}

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FitNetworkBinary : public testing::Test {
 protected:
  FitNetworkBinary() : folder_(fs::path(testing::TempDir()) / "fit_network") {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }

  std::string Path(const std::string& name) const { return folder_ / name; }

  void WriteRun(const std::string& name, const BenchRunForTest& config) const {
    std::ofstream file(Path(name));
    for (const RankTrace& rank : MakeBenchRun(config).ranks) {
      file << ToJsonLine(rank.run) << "\n";
      for (const auto& record : rank.collectives) {
        file << ToJsonLine(record) << "\n";
      }
    }
  }

  void WriteAll() const {
    BenchRunForTest two, four;
    two.collectives = {"all_reduce", "ping_pong", "send_recv"};
    four.world_size = 4;
    four.seconds = [](double bytes) { return 3e-4 + 1.5e-9 * bytes; };
    WriteRun("two.jsonl", two);
    WriteRun("four.jsonl", four);
  }

 private:
  const fs::path folder_;
};

TEST_F(FitNetworkBinary, PrintsTheCurvesOfAFolder) {
  WriteAll();
  const Outcome output = FitWith("--records=" + Path(""));
  EXPECT_EQ(output.exit_code, 0) << output.output;
  EXPECT_THAT(output.output,
              AllOf(HasSubstr("gloo on host"),
                    HasSubstr("all_reduce grows as ring, the best fit to 2"),
                    HasSubstr("ping_pong grows as flat, assumed"),
                    HasSubstr("8 B to 16 MiB"), Not(HasSubstr("left out"))));
}

TEST_F(FitNetworkBinary, WritesTheModelAndASTRASimsNetwork) {
  WriteAll();
  const Outcome output =
      FitWith(absl::StrCat("--records=", Path(""), " --json=", Path("n.json"),
                           " --astra_sim=", Path("n.yml")));
  EXPECT_EQ(output.exit_code, 0) << output.output;
  const auto network = NetworkFromJson(TextOf(Path("n.json")));
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_NEAR(network->Estimate("all_reduce", 1e6, 2)->seconds, 1.1e-3, 1e-8);
  EXPECT_THAT(TextOf(Path("n.yml")), AllOf(HasSubstr("npus_count: [ 4 ]"),
                                           HasSubstr("latency: [ 1000")));
}

TEST_F(FitNetworkBinary, MessagesBetweenHostsAreANetworkToo) {
  WriteRun("across.jsonl",
           {.collectives = {"send_recv"}, .world_size = 4, .hosts = 4});
  const Outcome output = FitWith(absl::StrCat(
      "--records=", Path("across.jsonl"), " --astra_sim=", Path("across.yml")));
  EXPECT_EQ(output.exit_code, 0) << output.output;
  EXPECT_THAT(output.output, HasSubstr("pipeline:show, from send_recv"));
  EXPECT_THAT(TextOf(Path("across.yml")), HasSubstr("npus_count: [ 4 ]"));
}

TEST_F(FitNetworkBinary, ItsFlagsAreTakenByShow) {
  WriteAll();
  const Outcome fit =
      FitWith("--message_bytes=100000 --records=" + Path("two.jsonl"));
  const size_t start = fit.output.find("--link=");
  ASSERT_NE(start, std::string::npos) << fit.output;
  const std::string flags =
      fit.output.substr(start, fit.output.find('\n', start) - start);
  EXPECT_THAT(flags, AllOf(HasSubstr("--link=0.0001,1e-09"),
                           HasSubstr("--bytes=100000")));
  const Outcome show = RunShell(
      absl::StrCat("parallel/pipeline/show --pp=2 --costs=0.001,0.001,0.001 ",
                   flags, " 2>&1"));
  EXPECT_EQ(show.exit_code, 0) << show.output;
}

TEST_F(FitNetworkBinary, BadUsageSaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "--records: must name"},
      {"file.jsonl", "unexpected argument \"file.jsonl\""},
      {"--records=x --message_bytes=-1", "--message_bytes=-1: must lie"},
      {"--records=x --message_bytes=nan", "--message_bytes=nan: must lie"},
      {"--records=x --npus=1", "--npus=1"},
      {"--records=x --npus=4", "--npus=4: only for --astra_sim=FILE"},
      {"--recrods=x", "Unknown command line flag 'recrods'"},
      {"--records=x --npus=-2", "--npus=-2: must lie"},
      {"--records=x --npus=many", "Illegal value 'many'"},
  };
  for (const auto& [flags, complaint] : wrong) {
    const Outcome output = FitWith(flags);
    EXPECT_EQ(output.exit_code, 2) << flags;
    EXPECT_THAT(output.output, HasSubstr(complaint));
  }
}

TEST_F(FitNetworkBinary, MissingRecordsAndCollectivesAreNamed) {
  const Outcome missing = FitWith("--records=" + Path("none.jsonl"));
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, HasSubstr("none.jsonl"));
  WriteRun("one.jsonl", {.world_size = 1});
  const Outcome alone = FitWith("--records=" + Path("one.jsonl"));
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_THAT(alone.output, HasSubstr("run comm_bench with --nproc=2"));
}

TEST_F(FitNetworkBinary, OfSeveralBackendsOneIsChosen) {
  WriteAll();
  WriteRun("fake.jsonl", {.backend = "fake"});
  const Outcome all = FitWith("--records=" + Path(""));
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_THAT(all.output,
              AllOf(HasSubstr("fake, gloo"), HasSubstr("--backend=NAME")));
  const Outcome one = FitWith("--backend=fake --records=" + Path(""));
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(one.output, HasSubstr("fake on host"));
}

TEST_F(FitNetworkBinary, AFileThatCannotBeWrittenIsNamed) {
  WriteAll();
  const Outcome output = FitWith(absl::StrCat("--records=", Path("two.jsonl"),
                                              " --json=", Path("no/n.json")));
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.output, HasSubstr("its folder must exist"));
}

}  // namespace
}  // namespace rankwise
