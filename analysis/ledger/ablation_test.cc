#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "analysis/ledger/cells_for_test.h"
#include "analysis/ledger/waterfall.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

PartsForTest Always(const LedgerParts& parts) {
  return [parts](int64_t, int64_t) { return parts; };
}

const RunForTest kDdp = {.world_size = 2, .batch_size = 16};
const std::map<std::string, std::string> kSkips = {
    {"skip_communication", "true"}};
const std::map<std::string, std::string> kSkipsNot = {
    {"skip_communication", "false"}};

TEST(AblationTest, ComparesWhatWasSavedWithTheLedger) {
  const StudyForTest study(
      {{kDdp, Always({0.034, 0.005, 0, 0.001, 0.001}), kSkipsNot},
       {kDdp, Always({0.030, 0, 0, 0.001, 0.001}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_EQ(ablations[0].cell, study.Find("ddp", 2, 16).cell);
  EXPECT_EQ(ablations[0].without, study.Find("ddp", 2, 16, true).cell);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.009, 1e-12);
  EXPECT_NEAR(ablations[0].exposed_seconds, 0.005, 1e-12);
  EXPECT_EQ(ablations[0].bubble_seconds, 0);
  EXPECT_NEAR(ablations[0].slowed_seconds, 0.004, 1e-12);
  EXPECT_NEAR(ablations[0].disagreement, 0, 1e-9);
  EXPECT_NEAR(ablations[0].exposed_disagreement, 5.0 / 9 - 1, 1e-9);
}

TEST(AblationTest, OfCapturedStepsItTellsTheWholeCostAndTestsNothing) {
  const StudyForTest study(
      {{kDdp, Always({0.034, 0.005, 0, 0.001, 0.001}), kSkipsNot, 2, true},
       {kDdp, Always({0.030, 0, 0, 0.001, 0.001}), kSkips, 2, true}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_TRUE(ablations[0].captured);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.009, 1e-12);
  EXPECT_EQ(ablations[0].exposed_seconds, 0);
  EXPECT_NEAR(ablations[0].slowed_seconds, 0.009, 1e-12);
  EXPECT_TRUE(std::isnan(ablations[0].disagreement));
  EXPECT_TRUE(std::isnan(ablations[0].exposed_disagreement));
}

TEST(AblationTest, FindsAKnownDisagreement) {
  // The ledger calls 6 ms exposed that are in no way due to communication: 4
  // of them stay as residual without it.
  const StudyForTest study(
      {{kDdp, Always({0.030, 0.006, 0, 0.001, 0})},
       {kDdp, Always({0.030, 0, 0, 0.001, 0.004}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.002, 1e-12);
  EXPECT_NEAR(ablations[0].disagreement, 2, 1e-9);
  EXPECT_NEAR(ablations[0].exposed_disagreement, 2, 1e-9);
}

TEST(AblationTest, NothingSavedIsNoAgreement) {
  const StudyForTest study(
      {{kDdp, Always({0.030, 0.001})}, {kDdp, Always({0.040}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_LT(ablations[0].saved_seconds, 0);
  EXPECT_TRUE(std::isnan(ablations[0].disagreement));
  EXPECT_TRUE(std::isnan(ablations[0].exposed_disagreement));
}

TEST(AblationTest, APipelineKeepsPartOfItsWaiting) {
  const RunForTest pipeline = {.binary = "pipeline",
                               .world_size = 2,
                               .batch_size = 8,
                               .schedule = "gpipe"};
  const StudyForTest study(
      {{pipeline, Always({0.030, 0.004, 0.012, 0.001, 0})},
       {pipeline, Always({0.029, 0.001, 0.010, 0.001, 0}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.006, 1e-12);
  EXPECT_NEAR(ablations[0].exposed_seconds, 0.003, 1e-12);
  EXPECT_NEAR(ablations[0].bubble_seconds, 0.002, 1e-12);
  EXPECT_NEAR(ablations[0].slowed_seconds, 0.001, 1e-12);
  EXPECT_NEAR(ablations[0].disagreement, 0, 1e-9);
  EXPECT_NEAR(ablations[0].exposed_disagreement, 3.0 / 6 - 1, 1e-9);
}

TEST(AblationTest, OnlyCommunicationMayDiffer) {
  RunForTest larger = kDdp;
  larger.batch_size = 32;
  RunForTest wider = kDdp;
  wider.world_size = 4;
  RunForTest pipeline = {.binary = "pipeline",
                         .world_size = 2,
                         .batch_size = 8,
                         .schedule = "gpipe"};
  RunForTest replicated = pipeline;
  replicated.replicas = 2;
  const PartsForTest any = Always({0.03});
  auto other_lr = kSkips;
  other_lr["lr"] = "0.2";
  auto other_record = kSkips;
  other_record["record"] = "elsewhere.jsonl";
  EXPECT_TRUE(FindAblations(StudyForTest({{kDdp, any},
                                          {larger, any, kSkips},
                                          {wider, any, kSkips},
                                          {kDdp, any, other_lr},
                                          {pipeline, any, kSkips},
                                          {replicated, any}})
                                .ledgers)
                  .empty());
  EXPECT_EQ(FindAblations(
                StudyForTest({{kDdp, any}, {kDdp, any, other_record}}).ledgers)
                .size(),
            1u);
}

}  // namespace
}  // namespace rankwise
