/* Stands between a server and its system, by LD_PRELOAD: its wall clock can be stepped, and it is noted how much of each
   file a flush has put on the disk. The file that AMPSQ_SHIM names holds both (tests/faults/shim.py). */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FILES 250

struct file { uint64_t inode; int64_t flushed; };
struct control { int64_t offset_us; int64_t used; struct file files[FILES]; };

static struct control *control;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("AMPSQ_SHIM");
  int descriptor = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (found != MAP_FAILED) control = found;
  close(descriptor);
}

/* The system's time, past whatever this file replaces. */
static void moved(struct timespec *now) {
  syscall(SYS_clock_gettime, CLOCK_REALTIME, now);
  if (!control) return;
  int64_t us = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + control->offset_us;
  now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
  now->tv_sec = us / 1000000;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return (int)syscall(SYS_clock_gettime, clock, now);
  moved(now);
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec found;
  moved(&found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  moved(&now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

/* A flush puts on the disk what was written before it began. */
static int flush(long call, int descriptor) {
  struct stat before;
  int known = control && fstat(descriptor, &before) == 0 && S_ISREG(before.st_mode);
  int result = (int)syscall(call, descriptor);
  if (!known || result != 0) return result;
  int64_t index = 0, used = __atomic_load_n(&control->used, __ATOMIC_ACQUIRE);
  while (index < used && index < FILES && control->files[index].inode != before.st_ino) index++;
  if (index >= used) index = __atomic_fetch_add(&control->used, 1, __ATOMIC_ACQ_REL);
  if (index >= FILES) return result;
  control->files[index].flushed = before.st_size;
  control->files[index].inode = before.st_ino;
  return result;
}

int fsync(int descriptor) { return flush(SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return flush(SYS_fdatasync, descriptor); }
