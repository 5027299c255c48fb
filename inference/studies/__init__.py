"""Studies of many jobs, on one core, several processes or a cluster, kept in a folder."""

from inference.studies.records import JobResult as JobResult, JobResults as JobResults
from inference.studies.run import run_jobs as run_jobs
from ppl_models.parts.surface import promised as _promised

__dir__ = _promised(__name__)
