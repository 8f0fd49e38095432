"""Unit tests of skips.py."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPS = pathlib.Path(__file__).with_name("skips.py")
PASSED = '<testcase name="Runs" classname="Gpu" status="run" result="completed" />'


def skipped(reason):
    return ('<testcase name="Needs" classname="Gpu" status="run" result="skipped">'
            f'<skipped message="a_test.cc:12&#x0A;{reason}"/></testcase>')


class SkipsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log("//a:one_test   (cached) PASSED in 0.1s\n//a:failing_test  FAILED in 0.2s\n")
        self.allow("^needs [0-9]+ GPUs => CI has none\n")

    def log(self, text):
        (self.folder / "log").write_text(text)

    def allow(self, text):
        (self.folder / "allowed").write_text("# comment\n\n" + text)

    def result(self, place, text):
        folder = self.folder / "testlogs" / place
        folder.mkdir(parents=True)
        (folder / "test.xml").write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")

    def run_skips(self):
        done = subprocess.run([sys.executable, SKIPS, self.folder / "log", f"--testlogs={self.folder}/testlogs",
                               f"--allowed={self.folder}/allowed"], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_an_allowed_reason_is_printed_and_counted(self):
        self.result("a/one_test", PASSED + skipped("needs 4 GPUs; 2 visible"))
        code, text = self.run_skips()
        self.assertEqual(code, 0)
        self.assertIn("skipped: //a:one_test Gpu.Needs: needs 4 GPUs; 2 visible\n1 test cases of 1 targets", text)
        self.assertIn("; 0 targets ran no case at all", text)

    def test_another_reason_fails(self):
        self.result("a/one_test", skipped("there is no chromium"))
        code, text = self.run_skips()
        self.assertEqual(code, 1)
        self.assertIn("SKIPPED, NOT ALLOWED: //a:one_test Gpu.Needs: there is no chromium\n", text)
        self.assertIn("; 1 targets ran no case at all", text)

    def test_every_shard_is_read_and_no_failed_or_other_target(self):
        self.result("a/one_test/shard_1_of_2", PASSED)
        self.result("a/one_test/shard_2_of_2", skipped("there is no chromium"))
        self.result("a/failing_test", skipped("why not"))
        self.result("a/of_another_run_test", skipped("why not"))
        code, text = self.run_skips()
        self.assertEqual(code, 1)
        self.assertIn("there is no chromium", text)
        self.assertNotIn("why not", text)

    def test_what_unittest_skips_counts(self):
        self.result("a/one_test", PASSED + "<system-out>Ran 3 tests\n\nOK (skipped=2)\n</system-out>")
        code, text = self.run_skips()
        self.assertEqual(code, 1)
        self.assertIn("//a:one_test a unittest and 1 more", text)

    def test_a_passed_target_without_a_result_is_an_error(self):
        self.assertEqual(self.run_skips()[0], 2)

    def test_an_expression_needs_a_reason(self):
        self.result("a/one_test", PASSED)
        self.allow("^needs\n")
        self.assertEqual(self.run_skips()[0], 2)


if __name__ == "__main__":
    unittest.main()
