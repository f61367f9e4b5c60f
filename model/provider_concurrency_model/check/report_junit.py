"""A run as JUnit XML, for CI systems that show test results: a suite a level, a test case a scenario or a level.

Undetermined is an error, never skipped: whoever reads only the colours must not take it for a pass. A known failure
that fails as its expectation file says is skipped with that reason; a file that isn't true fails in a suite of its own.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from provider_concurrency_model.check.counterexample import Counterexample, draw_sequence, tell_steps
from provider_concurrency_model.check.report import tell_verdict
from provider_concurrency_model.check.verdict import LevelReport, RunReport
from provider_concurrency_spec.vocabulary import PROTOCOL, SPEC_VERSION

_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 can't hold, not even escaped; a port may say anything."""


def report_to_junit(report: RunReport) -> str:
    """The text of the file."""
    name = _fit(f"provider-concurrency check {report.subject}")
    root = Element("testsuites", name=name, time=f"{report.seconds:.3f}")
    known = () if report.agreement is None else report.agreement.confirmed
    for level in report.levels:
        root.append(_suite_of(report, level, known))
    if report.agreement is not None:
        root.append(_suite_of_agreement(report))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite_of(report: RunReport, level: LevelReport, known: tuple[tuple[str, str], ...]) -> Element:
    suite = Element("testsuite", name=level.level, time=f"{level.seconds:.3f}")
    properties = SubElement(suite, "properties")
    for name, value in _properties(report, level).items():
        SubElement(properties, "property", name=name, value=_fit(value))
    found = {counterexample.case.name: counterexample for counterexample in level.counterexamples}
    for result in level.results:
        case = _case(suite, level.level, result.case)
        match result.result:
            case "skipped":
                SubElement(case, "skipped", message=_fit(result.told))
            case "failed" if (level.level, result.case) in known:
                SubElement(case, "skipped", message=_fit(f"known failure: {result.rule}: {result.told}"))
            case "failed":
                failure = SubElement(case, "failure", type=result.rule or "", message=_fit(result.told))
                failure.text = _fit(_tell(found.get(result.case)))
            case "passed":
                pass
    _add_whole(suite, level)
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    return suite


def _add_whole(suite: Element, level: LevelReport) -> None:
    """The level itself as a case: whether it was carried out. A level of walks is nothing else, unless one fails."""
    whole = _case(suite, level.level, "(the whole level)")
    whole.set("time", f"{level.seconds:.3f}")
    if level.lacking:
        SubElement(whole, "skipped", message=f"the subject lacks {', '.join(level.lacking)}")
    elif level.undetermined is not None or not level.cases:
        SubElement(whole, "error", type="undetermined", message=_fit(level.undetermined or "nothing was asked"))


def _suite_of_agreement(report: RunReport) -> Element:
    assert report.agreement is not None, "the caller looked"
    problems = report.agreement.problems
    suite = Element("testsuite", name="expectations", tests=str(len(problems) or 1), failures=str(len(problems)))
    suite.set("errors", "0")
    suite.set("skipped", "0")
    for problem in problems:
        case = _case(suite, "expectations", problem.split(" (")[0])
        SubElement(case, "failure", type="expectation", message=_fit(problem))
    if not problems:
        _case(suite, "expectations", f"{report.agreement.file} tells the truth")
    return suite


def _case(suite: Element, level: str, name: str) -> Element:
    return SubElement(suite, "testcase", classname=f"provider-concurrency.{level}", name=_fit(name))


def _properties(report: RunReport, level: LevelReport) -> dict[str, str]:
    hello = report.hello
    lacked = ", ".join(f"{features} ({count})" for features, count in sorted(level.skipped.items()))
    return {
        "subject": report.subject,
        "port": f"{hello.name} {hello.version} ({hello.language}, {hello.runtime})",
        "kit": report.kit,
        "spec": SPEC_VERSION,
        "protocol": str(PROTOCOL),
        "features": ", ".join(sorted(hello.features)),
        "seed": str(report.seed),
        "runs": str(report.runs),
        "verdict": level.said,
        "strength": level.strength,
        "bounds": level.bounds,
        "cases": str(level.cases),
        "replies": str(level.commands),
        "edges": level.coverage,
        "skipped": lacked,
        "run": f"{report.said}: {tell_verdict(report)}",
    }


def _tell(found: Counterexample | None) -> str:
    return "" if found is None else "\n".join([*tell_steps(found), "", draw_sequence(found)])


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)
