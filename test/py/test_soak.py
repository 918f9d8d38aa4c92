"""The soak of soak.py, for TB_SOAK_MINUTES (3) with TB_SOAK_SESSIONS (4)."""

import os

import soak
from conftest import SUMMARY


def test_soak():
    minutes = float(os.environ.get("TB_SOAK_MINUTES", 3))
    made = soak.Soak(minutes, int(os.environ.get("TB_SOAK_SESSIONS", 4)), int(os.environ.get("TB_SOAK_SEED", 1)), 0.05)
    try:
        report = made.run()
    finally:
        made.close()
    SUMMARY.append(f"soak: {report['seconds']} s, {report['sessions']} sessions, {report['succeeded']} of {report['statements']} statements,"
                   f" {report['blocks']} blocks compared, {report['requests']} requests, {report['faults']} faults of {report['kinds']} kinds:"
                   f" {', '.join(f'{k} {n}' for k, n in report['injected'].items())}; errors: {report['errors'] or 'none'};"
                   f" growth: {report['growth']}")
    assert soak.judge(report) == []
    assert report["kinds"] >= 25
    assert report["blocks"] > 1000 * minutes
    assert report["growth"], "nothing was measured"
