"""Many jobs of one kind (fits of many seeds, sizes, data sets) on one core, several processes or a
cluster, kept in a folder.
"""

from inference.studies.records import JobResult, JobResults
from inference.studies.run import run_jobs

__all__ = ["JobResult", "JobResults", "run_jobs"]
