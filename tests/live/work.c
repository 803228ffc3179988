/* What the jobs of the simulated week do: hold memory and burn CPU for a while, perhaps with a peak, and exit.
   work MIB CPU_S WALL_S THREADS PEAK_MIB PEAK_S FIRST EXIT      (FIRST: factor on the memory of task 0) */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double burnt_s;

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void *burn(void *none) {
  while (now(CLOCK_THREAD_CPUTIME_ID) < burnt_s)
    for (volatile int i = 0; i < 100000; i++) {}
  return none;
}

static char *held(size_t mib) {
  char *memory = malloc((mib << 20) + 1);
  if (memory == NULL) exit(99);
  memset(memory, 1, mib << 20);
  return memory;
}

int main(int count, char **words) {
  if (count != 9) return 98;
  double ends = now(CLOCK_MONOTONIC) + atof(words[3]);
  int mib = atoi(words[1]), threads = atoi(words[4]);
  const char *task = getenv("SLURM_PROCID");
  pthread_t made[64];
  burnt_s = atof(words[2]) / threads;
  held(mib * (task != NULL && atoi(task) == 0 ? atoi(words[7]) : 1));
  for (int i = 0; i < threads; i++) pthread_create(&made[i], NULL, burn, NULL);
  for (int i = 0; i < threads; i++) pthread_join(made[i], NULL);
  if (atoi(words[5]) > 0) {
    char *peak = held(atoi(words[5]));
    usleep(atof(words[6]) * 1e6);
    free(peak);
  }
  while (now(CLOCK_MONOTONIC) < ends) usleep(20000);
  return atoi(words[8]);
}
