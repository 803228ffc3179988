#!/bin/sh
# Prolog: name the job at each of its GPUs, as dcgm-exporter's --hpc-job-mapping-dir reads it; never fails a job.
if [ -n "$SLURM_JOB_GPUS" ]; then
    mkdir -p "@GPUS@" && for gpu in $(echo "$SLURM_JOB_GPUS" | tr , ' '); do
        echo "$SLURM_JOB_ID" >> "@GPUS@/$gpu"
    done
fi
exit 0
