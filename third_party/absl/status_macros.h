// Early returns of errors, as in newer Abseil releases (ABSL_RETURN_IF_ERROR).
#ifndef RANKWISE_THIRD_PARTY_ABSL_STATUS_MACROS_H_
#define RANKWISE_THIRD_PARTY_ABSL_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates `expression`, an absl::Status, and returns it from the function if it is an error:
//   RETURN_IF_ERROR(CheckFlags(config));
#define RETURN_IF_ERROR(expression)                                   \
  do {                                                                \
    absl::Status rankwise_status = (expression);                      \
    if (!rankwise_status.ok()) return rankwise_status;                \
  } while (false)

// Evaluates `expression`, an absl::StatusOr<T>; returns its error, or assigns its value to `target`, a variable or
// a declaration:
//   ASSIGN_OR_RETURN(const RankEnv env, ReadRankEnv());
// If the type has a comma, use `auto`.
#define ASSIGN_OR_RETURN(target, ...) RANKWISE_ASSIGN_OR_RETURN_AT(__COUNTER__, target, __VA_ARGS__)

#define RANKWISE_ASSIGN_OR_RETURN_AT(number, target, ...) RANKWISE_ASSIGN_OR_RETURN_TO(number, target, __VA_ARGS__)
#define RANKWISE_ASSIGN_OR_RETURN_TO(number, target, ...)                        \
  auto rankwise_result_##number = (__VA_ARGS__);                                 \
  if (!rankwise_result_##number.ok()) return std::move(rankwise_result_##number).status(); \
  target = *std::move(rankwise_result_##number)

#endif  // RANKWISE_THIRD_PARTY_ABSL_STATUS_MACROS_H_
