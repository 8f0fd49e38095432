#include "comm_bench/output/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kHeader[] =
    "collective,layer,ranks,concurrent_groups,bytes,count,dtype,op,root,in_"
    "place,timing,"
    "cuda_graph,registered,algorithm,protocol,samples,late,min_seconds,median_"
    "seconds,median_low_seconds,median_high_seconds,"
    "p95_seconds,p99_seconds,max_seconds,skew_seconds,algbw_gb_per_second,"
    "busbw_gb_per_second,contention,contention_low,contention_high,"
    "peer_share,wrong,end\n";

Row ExampleRow() {
  Row row;
  row.record.collective = "broadcast";
  row.record.layer = "c10d";
  row.record.ranks = {0, 2};
  row.record.concurrent_groups = 3;
  row.record.bytes = 4096;
  row.record.count = 1024;
  row.record.dtype = "float32";
  row.record.root = 1;
  row.record.in_place = true;
  row.time = {20, 1, 0.125, 0.25, 0.5, 1, 2, 0.1875, 0.375, 0.0625};
  row.algbw = 0.1;
  row.busbw = 0.2;
  row.record.algorithm = "RING";
  row.record.protocol = "LL";
  row.contention = {1.25, 1.125, 1.5};
  row.peer_share = 0.5;
  row.wrong = 0;
  row.end = Series::End::kOutOfTime;
  return row;
}

std::string PathFor(const std::string& name) {
  return testing::TempDir() + "/" + name;
}

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(CsvWriter, WritesEachRowAtOnce) {
  const std::string path = PathFor("rows.csv");
  auto writer = CsvWriter::Open(path, {{"run_id", "r1"}, {"launch", "2"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string header = std::string("run_id,launch,") + kHeader;
  EXPECT_EQ(TextOf(path), header);
  ASSERT_TRUE((*writer)->Write(ExampleRow()).ok());
  EXPECT_EQ(TextOf(path),
            header +
                "r1,2,broadcast,c10d,\"0,2\",3,4096,1024,float32,,1,true,host,"
                "false,false,RING,LL,20,1,0.125,0.25,0.1875,0.375,0.5,1,2,"
                "0.0625,0.1,0.2,1.25,1.125,1.5,0.5,0,"
                "out_of_time\n");
}

TEST(CsvWriter, WhatDoesNotApplyIsEmpty) {
  const std::string path = PathFor("empty.csv");
  Row barrier;
  barrier.record.layer = "";
  barrier.record.collective = "barrier";
  ASSERT_TRUE((*CsvWriter::Open(path))->Write(barrier).ok());
  EXPECT_THAT(TextOf(path), EndsWith("\nbarrier,,,,,,,,,,host,false,false,,,0,"
                                     "0,,,,,,,,,,,,,,,,counted\n"));
}

TEST(CsvWriter, QuotesWhatWouldBreakALine) {
  const std::string path = PathFor("quotes.csv");
  Row row;
  row.record.layer = "";
  row.record.collective = "a \"b\"\nc";
  ASSERT_TRUE((*CsvWriter::Open(path))->Write(row).ok());
  EXPECT_THAT(TextOf(path), HasSubstr("\n\"a \"\"b\"\"\nc\",,,,"));
}

TEST(CsvWriter, AppendsToItsOwnFileAndClosesATornLine) {
  const std::string path = PathFor("append.csv");
  WriteText(path, std::string(kHeader) + "broadcast,c1");
  ASSERT_TRUE((*CsvWriter::Open(path))->Write(ExampleRow()).ok());
  EXPECT_THAT(TextOf(path), HasSubstr("broadcast,c1\nbroadcast,c10d,"));
  EXPECT_EQ(TextOf(path).rfind("collective,"), 0u);
}

TEST(CsvWriter, LeavesOtherFilesAlone) {
  const std::string path = PathFor("other.csv");
  for (const char* text : {"some,other,table\n1,2,3\n", "x"}) {
    WriteText(path, text);
    const absl::Status status = CsvWriter::Open(path).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("name another file"));
    EXPECT_EQ(TextOf(path), text);
  }
}

TEST(CsvWriter, UnwritableFilesAreNamed) {
  const absl::Status missing =
      CsvWriter::Open(PathFor("no/folder.csv")).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("/no/folder.csv (its folder must exist)"));
  EXPECT_THAT(
      std::string(CsvWriter::Open(testing::TempDir()).status().message()),
      HasSubstr("Is a directory"));
  const absl::Status full = CsvWriter::Open("/dev/full").status();
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left"));
}

}  // namespace
}  // namespace rankwise::comm_bench
