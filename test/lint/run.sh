#!/bin/sh
# House rules as scripts: test/lint/rules.py. Last line "N passed, N failed", counted by rule.
cd "$(dirname "$0")" || exit 2
PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 rules.py
