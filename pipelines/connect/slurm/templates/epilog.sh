#!/bin/sh
# Epilog: take the job's name from every GPU; never fails, since a failing epilog drains the node. SLURM_JOB_GPUS is not
# read: it is empty after a restart of slurmctld. The lock keeps apart epilogs and prologs that run at the same time.
cd "@GPUS@" 2>/dev/null || exit 0
exec 9< .
flock 9
for gpu in *; do
    if [ -f "$gpu" ] && grep -qx "$SLURM_JOB_ID" "$gpu"; then
        others=$(grep -vx "$SLURM_JOB_ID" "$gpu")
        printf '%s' "${others:+$others
}" > "$gpu"
    fi
done
exit 0
