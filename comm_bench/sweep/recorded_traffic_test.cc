#include "comm_bench/sweep/recorded_traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "records/record_writer.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

RecordedTransfer Event(const std::string& op, int64_t count, int64_t peer = -1,
                       const std::vector<int64_t>& ranks = {}) {
  RecordedTransfer event;
  event.op = op;
  event.count = count;
  event.bytes = count * 4;
  event.dtype = "float32";
  event.peer = peer;
  event.ranks = ranks;
  event.start_seconds = 1;
  event.end_seconds = 2;
  return event;
}

TrafficRecord Traffic(int64_t rank, int64_t step,
                      const std::vector<RecordedTransfer>& events) {
  TrafficRecord record;
  record.rank = rank;
  record.step = step;
  record.events = events;
  return record;
}

class RecordFile {
 public:
  RecordFile()
      : path_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name() +
              ".jsonl"),
        writer_(RecordWriter::Open(path_).value()) {}

  void Run(const std::string& id, int64_t world_size) {
    for (int64_t rank = 0; rank < world_size; ++rank) {
      RunRecord run;
      run.run_id = id;
      run.binary = "ddp";
      run.flags = {{"run", id}};
      run.rank = rank;
      run.world_size = world_size;
      Write(run);
    }
  }
  void Write(const Record& record) { ASSERT_TRUE(writer_->Write(record).ok()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::unique_ptr<RecordWriter> writer_;
};

std::string ErrorOf(const RecordFile& file, int world_size) {
  const auto read = ReadTraffic(file.path(), world_size);
  return std::string(read.status().message());
}

TEST(ReadTrafficTest, StepsOfTheLastRunThatHasSome) {
  RecordFile file;
  file.Run("old", 3);
  file.Write(Traffic(0, 1, {}));
  file.Run("new", 2);
  for (int64_t rank : {1, 0}) {
    file.Write(Traffic(rank, 3, {Event("all_reduce", 7)}));
    file.Write(Traffic(rank, 4, {Event("all_reduce", 8)}));
  }
  file.Write(Traffic(0, 5, {Event("all_reduce", 9)}));  // killed
  file.Run("without", 2);
  const auto read = ReadTraffic(file.path(), 2);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->trainer, "ddp");
  EXPECT_EQ(read->flags.at("run"), "new");
  ASSERT_EQ(read->steps.size(), 2u);
  EXPECT_EQ(read->steps[1][1].rank, 1);
  EXPECT_EQ(read->steps[1][1].step, 4);
  EXPECT_EQ(read->steps[1][0].events[0].count, 8);
}

TEST(ReadTrafficTest, AFileWithoutTrafficSaysHowToGetSome) {
  RecordFile file;
  file.Run("a", 2);
  EXPECT_EQ(ErrorOf(file, 2),
            file.path() +
                ": holds no communication of a trainer; record some by "
                "training with --traffic_steps=2 --record=" +
                file.path());
}

TEST(ReadTrafficTest, OtherWorldSizesAndMissingRanksAreNamed) {
  RecordFile file;
  file.Run("a", 4);
  file.Write(Traffic(1, 3, {}));
  file.Write(Traffic(2, 3, {}));
  EXPECT_EQ(
      ErrorOf(file, 2),
      file.path() + ": recorded with 4 ranks, and here are 2; start as many");
  EXPECT_THAT(ErrorOf(file, 4), EndsWith("step 3 lacks that of rank 0, 3"));
}

TEST(ReadTrafficTest, WhatDoesNotFitComesWithTheFile) {
  RecordFile file;
  file.Run("a", 1);
  file.Write(Traffic(0, 3, {Event("gather", 4)}));
  EXPECT_THAT(ErrorOf(file, 1),
              HasSubstr(file.path() + ": step 3 of rank 0: gather cannot "
                                      "be replayed"));
}

std::string Refusal(const std::vector<RecordedTransfer>& first,
                    const std::vector<RecordedTransfer>& second) {
  return std::string(
      CheckTraffic({Traffic(0, 3, first), Traffic(1, 3, second)}).message());
}

TEST(CheckTrafficTest, AcceptsMatchingRanks) {
  EXPECT_EQ(Refusal({Event("all_reduce", 7), Event("send", 3, 1),
                     Event("barrier", 0), Event("recv", 2, 1, {1, 0})},
                    {Event("send", 2, 0, {1, 0}), Event("all_reduce", 7),
                     Event("barrier", 0), Event("recv", 3, 0)}),
            "");
}

TEST(CheckTrafficTest, MessagesThatDoNotArrive) {
  EXPECT_EQ(Refusal({Event("send", 3, 1), Event("send", 5, 1)},
                    {Event("recv", 3, 0), Event("recv", 4, 0)}),
            "step 3: number 2 of the messages from rank 0 to 1 is one of 20 "
            "bytes on rank 0, but one of 16 bytes on rank 1");
  EXPECT_EQ(Refusal({Event("send", 3, 1), Event("send", 5, 1)},
                    {Event("recv", 3, 0)}),
            "step 3: number 2 of the messages from rank 0 to 1 is one of 20 "
            "bytes on rank 0, but nothing on rank 1");
  EXPECT_EQ(Refusal({}, {Event("recv", 3, 0)}),
            "step 3: number 1 of the messages from rank 0 to 1, one of 12 "
            "bytes, is called by 1 of its 2 ranks only");
}

// Ranks may receive the messages of two groups in different orders.
TEST(CheckTrafficTest, MessagesAreInOrderWithinTheirGroup) {
  EXPECT_EQ(Refusal({Event("send", 3, 1), Event("send", 5, 1, {1, 0})},
                    {Event("recv", 5, 0, {1, 0}), Event("recv", 3, 0)}),
            "");
}

TEST(CheckTrafficTest, CollectivesThatDiffer) {
  EXPECT_EQ(Refusal({Event("all_reduce", 3), Event("broadcast", 4, 0)},
                    {Event("all_reduce", 3), Event("broadcast", 4, 1)}),
            "step 3: number 2 of the collectives of ranks 0, 1 is broadcast of "
            "4 float32 from rank 0 on rank 0, but broadcast of 4 float32 from "
            "rank 1 on rank 1");
  EXPECT_THAT(Refusal({Event("all_reduce", 3, -1, {0, 1})}, {}),
              HasSubstr("is called by 1 of its 2 ranks only"));
}

TEST(CheckTrafficTest, PeersGroupsAndBuffersThatCannotBe) {
  EXPECT_THAT(
      Refusal({Event("send", 3, 0)}, {}),
      HasSubstr(": send with rank 0, which is not another rank of its group"));
  EXPECT_THAT(Refusal({Event("send", 3, 5)}, {}), HasSubstr("with rank 5"));
  EXPECT_THAT(Refusal({Event("all_reduce", 3, -1, {1})}, {}),
              HasSubstr("in a group of ranks 1, which is not within 2 ranks"));
  EXPECT_EQ(Refusal({Event("reduce_scatter", 3)}, {}),
            "step 3 of rank 0: reduce_scatter of 3 float32 does not divide "
            "among 2 ranks");
  EXPECT_EQ(Refusal({Event("all_gather", 3)}, {Event("all_gather", 3)}), "");
  RecordedTransfer odd = Event("all_reduce", 3);
  odd.bytes = 13;
  EXPECT_THAT(Refusal({odd}, {}),
              HasSubstr(": all_reduce of 3 float32 in 13 bytes"));
  odd.count = (int64_t{1} << 62) + 3;  // four times the count is 12 modulo 2^64
  odd.bytes = 12;
  EXPECT_THAT(Refusal({odd}, {}), HasSubstr(" float32 in 12 bytes"));
  odd.count = int64_t{1} << 50;
  odd.bytes = 4 * odd.count;
  EXPECT_THAT(Refusal({odd}, {}), HasSubstr(" float32 in 4503599627370496 by"));
  odd.dtype = "complex";
  EXPECT_THAT(Refusal({odd}, {}), HasSubstr("complex"));
}

}  // namespace
}  // namespace rankwise::comm_bench
