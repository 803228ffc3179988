#!/bin/sh
# Epilog: take the job's name from each of its GPUs; never fails, since a failing epilog drains the node.
for gpu in $(echo "$SLURM_JOB_GPUS" | tr , ' '); do
    [ -f "@GPUS@/$gpu" ] && sed -i "/^$SLURM_JOB_ID\$/d" "@GPUS@/$gpu"
done
exit 0
