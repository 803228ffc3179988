/* Faults in the file system and the clock: a library for LD_PRELOAD, steered through its variables.
   The call number `fault_after` of a kind and, if `fault_sticks`, all later ones fail, until `fault_kind` is 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { NONE, WRITE_ERROR, DISK_FULL, SHORT_WRITE, READ_ERROR, SYNC_ERROR, SLOW_SYNC };
int fault_kind, fault_after, fault_sticks, fault_hits;
long fault_clock_s;

static int due(void) {
    if (fault_after-- > 0) return 0;
    if (!fault_sticks && fault_after < -1) return 0;
    fault_hits++;
    return 1;
}
#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
#define WRITES(name, offset_type)                                                     \
    ssize_t name(int fd, const void *data, size_t size, offset_type at) {             \
        if (fault_kind == WRITE_ERROR && due()) return errno = EIO, -1;               \
        if (fault_kind == DISK_FULL && due()) return errno = ENOSPC, -1;              \
        if (fault_kind == SHORT_WRITE && size > 1 && due()) size /= 2;                \
        return REAL(name, fd, data, size, at);                                        \
    }
#define READS(name, offset_type)                                                      \
    ssize_t name(int fd, void *data, size_t size, offset_type at) {                   \
        if (fault_kind == READ_ERROR && due()) return errno = EIO, -1;                \
        return REAL(name, fd, data, size, at);                                        \
    }
#define SYNCS(name)                                                                   \
    int name(int fd) {                                                                \
        if (fault_kind == SYNC_ERROR && due()) return errno = EIO, -1;                \
        if (fault_kind == SLOW_SYNC && due()) usleep(20000);                          \
        return REAL(name, fd);                                                        \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)
READS(pread, off_t)
READS(pread64, off64_t)
SYNCS(fsync)
SYNCS(fdatasync)

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += fault_clock_s;
    return result;
}
