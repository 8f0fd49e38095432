// Standard streams: a program fails if its output cannot be written.
#ifndef RANKWISE_RECORDS_STANDARD_OUTPUT_H_
#define RANKWISE_RECORDS_STANDARD_OUTPUT_H_

namespace rankwise {

// Makes lost output a failure: if the standard output could not be written
// completely (a full disk, a closed descriptor), the process prints one line to
// stderr when it exits, and exits with kFailed instead of 0.
// Standard streams that are closed are replaced by ones that refuse output, so
// that no file that is opened later takes their numbers. Call it first in
// main(), before files are opened; ParseFlags() does. Later calls do nothing.
void CheckStandardOutputAtExit();

// Flushes the standard output and returns the exit code, as above, of a process
// that would exit with `exit_code`. For processes that end by _exit().
int FinishStandardOutput(int exit_code);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_STANDARD_OUTPUT_H_
