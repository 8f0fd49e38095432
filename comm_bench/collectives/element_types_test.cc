#include "comm_bench/collectives/element_types.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

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
