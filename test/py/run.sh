#!/bin/bash
# pytest against private clusters. Further arguments go to pytest. TB_VENV: another Python environment than build/venv.
# It runs in test/py: in the project's root tensorbank.so would be taken for the Python package.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
venv=$(cd "${TB_VENV:-build/venv}" && pwd) || exit 2
report=$root/${TB_REPORT:-build/pytest.xml}
mkdir -p build
test/cluster.sh install || exit 1
rm -f "$report"
cd test/py || exit 2
PYTHONPATH=$root/src/client/python PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider -W ignore::UserWarning --tb=short \
	--junitxml="$report" -o junit_family=xunit1 "${@#test/py/}"
rc=$?
# Skipped tests are told, with their reasons, but are neither passed nor failed; errors are failures.
"$venv/bin/python" - "$report" $rc <<'PY'
import sys
import xml.etree.ElementTree as tree

passed = failed = 0
try:
    suites = tree.parse(sys.argv[1]).getroot().iter("testsuite")
except (OSError, tree.ParseError):
    suites = ()
    failed = 1
for suite in suites:
    n = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    for case in suite.iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            print(f"SKIP {case.get('classname')}.{case.get('name')}: {skipped.get('message')}")
    # a test that passes and whose teardown fails counts once, as failed
    failed += n["failures"] + n["errors"]
    passed += max(n["tests"] - n["failures"] - n["errors"] - n["skipped"], 0)
if int(sys.argv[2]) not in (0, 1) and not failed:
    failed = 1
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
PY
