// Standard streams: a program fails if its output cannot be written.
#ifndef RANKWISE_RECORDS_STANDARD_OUTPUT_H_
#define RANKWISE_RECORDS_STANDARD_OUTPUT_H_

namespace rankwise {

// Makes lost output a failure: if the standard output could not be written
// completely (a full disk, a closed descriptor), the process prints one line to
// stderr on exit and exits with kFailed instead of 0. Replaces closed standard
// streams by ones that reject output, so that files opened later cannot reuse
// their descriptors. Call it first in main(), before opening files;
// ParseFlags() does. Later calls have no effect.
void CheckStandardOutputAtExit();

// Flushes the standard output. Returns the exit code of a process that would
// otherwise exit with `exit_code`. For processes that end with _exit().
int FinishStandardOutput(int exit_code);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_STANDARD_OUTPUT_H_
