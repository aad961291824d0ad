# SPDX-License-Identifier: Apache-2.0
"""What records say of the command they come from."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import provenance  # noqa: E402


class CommandLineTest(unittest.TestCase):
    def test_files_keep_only_their_names_where_the_path_is_absolute(self):
        words = ["--json", "/" + "home/someone/times.json", "--svg=/" + "home/someone/times.svg", "/" + "home/someone/"]
        self.assertEqual(provenance.command_line("bench", words), "bench --json times.json --svg=times.svg someone")

    def test_other_words_stay_and_are_quoted(self):
        words = ["--policies", "none,none again", "--filter", "^encode/fp10", "--json", "results/times.json"]
        self.assertEqual(provenance.command_line("bench", words),
                         "bench --policies 'none,none again' --filter '^encode/fp10' --json results/times.json")


if __name__ == "__main__":
    unittest.main()
