#!/bin/sh
# Prolog: name the job at each of its GPUs, as dcgm-exporter's --hpc-job-mapping-dir reads it; never fails a job.
[ -n "$SLURM_JOB_GPUS" ] && mkdir -p "@GPUS@" && cd "@GPUS@" || exit 0
exec 9< .
flock 9
for gpu in $(echo "$SLURM_JOB_GPUS" | tr , ' '); do
    echo "$SLURM_JOB_ID" >> "$gpu"
done
exit 0
