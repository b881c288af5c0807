"""Why a graph-mode run fails or recompiles: from its log, or by running its script in stages.

    from tokamak.diagnose import diagnose_logs
    print(diagnose_logs(["serve.log"]).text())

lines.py reads logs, ../graphlog.py what Dynamo says of recompilations, graph_rules.py knows the
faults, graph_log.py puts them in order of blame, stages.py runs a script (GM-40 to GM-42).
"""

from .graph_log import Diagnosis, Finding, diagnose_logs

__all__ = ["Diagnosis", "Finding", "diagnose_logs"]
