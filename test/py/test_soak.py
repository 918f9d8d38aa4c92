"""The soak of soak.py, for TB_SOAK_MINUTES (3) with TB_SOAK_SESSIONS (4)."""

import os

import soak
from conftest import SUMMARY


def test_soak():
    minutes = float(os.environ.get("TB_SOAK_MINUTES", 3))
    made = soak.Soak(minutes, int(os.environ.get("TB_SOAK_SESSIONS", 4)), int(os.environ.get("TB_SOAK_SEED", 1)))
    try:
        report = made.run()
    finally:
        made.close()
    SUMMARY.append(soak.summary(report))
    SUMMARY.extend(report["texts"][:20])
    assert soak.judge(report) == []
    assert len(report["kinds"]) >= 25
    assert 0.04 < report["faults"] / report["requests"] < 0.06
    assert report["blocks"] > 1000 * minutes
    assert minutes < 2 or report["backends"] >= 2, "nothing was measured"
