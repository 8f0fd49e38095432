#include "comm_bench/collectives/collective.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

// A collective whose counts are multiples of the number of ranks.
Collective Divided() {
  Collective collective;
  collective.name = "divided";
  collective.granularity = [](int n) { return int64_t{n}; };
  return collective;
}

Call CallOver(int world_size, int64_t count) {
  Call call;
  call.world_size = world_size;
  call.count = count;
  return call;
}

std::string RefusalOf(const Collective& collective, const Call& call) {
  const absl::Status status = CheckCall(collective, call);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(CheckCallTest, RefusesTooFewRanks) {
  Collective collective;
  collective.name = "ping";
  collective.min_world_size = 2;
  EXPECT_EQ(RefusalOf(collective, CallOver(1, 4)),
            "ping needs at least 2 ranks; the group has 1");
  EXPECT_TRUE(CheckCall(collective, CallOver(2, 4)).ok());
}

TEST(CheckCallTest, RefusesARootThatIsNoRank) {
  Collective collective;
  collective.name = "rooted";
  collective.rooted = true;
  Call call = CallOver(3, 4);
  for (const int root : {-1, 3}) {
    call.root = root;
    EXPECT_EQ(RefusalOf(collective, call),
              "rooted with --root=" + std::to_string(root) +
                  ": the group's ranks are 0 to 2");
  }
  call.root = 2;
  EXPECT_TRUE(CheckCall(collective, call).ok());
}

TEST(CheckCallTest, RefusesAveragesOfIntegers) {
  Collective collective;
  collective.name = "reduction";
  collective.reduces = true;
  Call call = CallOver(2, 4);
  call.op = ReduceOp::AVG;
  for (const c10::ScalarType dtype : {at::kInt, at::kLong, at::kByte}) {
    call.dtype = dtype;
    EXPECT_THAT(RefusalOf(collective, call),
                testing::EndsWith(
                    " with op avg: the average of integers is not an integer"));
  }
  call.dtype = at::kHalf;
  EXPECT_TRUE(CheckCall(collective, call).ok());
}

TEST(CheckCallTest, RefusesThePlaceThatACollectiveLacks) {
  Collective collective;
  collective.name = "placed";
  collective.in_place = false;
  Call call = CallOver(2, 4);
  EXPECT_TRUE(CheckCall(collective, call).ok());
  call.in_place = true;
  EXPECT_THAT(RefusalOf(collective, call),
              testing::StartsWith("placed cannot run in place"));
}

TEST(CheckCallTest, RefusesCountsThatDoNotDivide) {
  EXPECT_EQ(RefusalOf(Divided(), CallOver(4, 6)),
            "divided of 6 elements over 4 ranks: the count must be a multiple "
            "of 4");
  EXPECT_EQ(RefusalOf(Divided(), CallOver(4, 0)),
            "divided of 0 elements: the count must be at least 1");
  EXPECT_TRUE(CheckCall(Divided(), CallOver(4, 8)).ok());
}

TEST(CheckCallTest, AsksTheEntryLast) {
  Collective collective = Divided();
  collective.refuse = [](const Call&) {
    return absl::InvalidArgumentError("not today");
  };
  EXPECT_EQ(RefusalOf(collective, CallOver(2, 4)), "not today");
  EXPECT_THAT(RefusalOf(collective, CallOver(2, 3)),
              HasSubstr("multiple of 2"));
}

TEST(CountForTest, RoundsDownToTheGranularityButNotToNothing) {
  EXPECT_EQ(CountFor(Divided(), 4096, at::kFloat, 4), 1024);
  EXPECT_EQ(CountFor(Divided(), 4096, at::kFloat, 3), 1023);
  EXPECT_EQ(CountFor(Divided(), 4096, at::kByte, 3), 4095);
  EXPECT_EQ(CountFor(Divided(), 8, at::kDouble, 3), 3);
  EXPECT_EQ(CountFor(Divided(), 0, at::kHalf, 1), 1);
  EXPECT_EQ(CountFor(Collective(), 9, at::kFloat, 4), 2);
}

TEST(CountForTest, IsNothingWithoutElements) {
  Collective collective;
  collective.has_elements = false;
  EXPECT_EQ(CountFor(collective, 4096, at::kFloat, 4), 0);
}

TEST(ElementTypesTest, NamesOfDtypesReadBack) {
  EXPECT_EQ(AllDtypes().size(), 7u);
  for (const c10::ScalarType dtype : AllDtypes()) {
    EXPECT_EQ(ParseDtype(DtypeName(dtype)).value(), dtype);
  }
}

TEST(ElementTypesTest, ShortNamesMeanTheSameTypes) {
  EXPECT_EQ(ParseDtype("fp32").value(), c10::ScalarType::Float);
  EXPECT_EQ(ParseDtype("fp64").value(), c10::ScalarType::Double);
  EXPECT_EQ(ParseDtype("fp16").value(), c10::ScalarType::Half);
  EXPECT_EQ(ParseDtype("bf16").value(), c10::ScalarType::BFloat16);
}

TEST(ElementTypesTest, AnUnknownDtypeIsAnsweredWithTheNames) {
  for (const char* name : {"float", "", "FLOAT32"}) {
    const auto dtype = ParseDtype(name);
    EXPECT_TRUE(absl::IsInvalidArgument(dtype.status())) << name;
    EXPECT_THAT(std::string(dtype.status().message()),
                HasSubstr("float32 (fp32), float64 (fp64), float16 (fp16), "
                          "bfloat16 (bf16), int32, int64, uint8"));
  }
}

TEST(ElementTypesTest, NamesOfOpsReadBack) {
  EXPECT_EQ(AllOps().size(), 5u);
  for (const ReduceOp op : AllOps()) EXPECT_EQ(ParseOp(OpName(op)).value(), op);
}

TEST(ElementTypesTest, AnUnknownOpIsAnsweredWithTheNames) {
  const auto op = ParseOp("mean");
  EXPECT_TRUE(absl::IsInvalidArgument(op.status()));
  EXPECT_EQ(op.status().message(),
            "unknown op 'mean'; there are sum, avg, min, max, prod");
}

}  // namespace
}  // namespace rankwise::comm_bench
