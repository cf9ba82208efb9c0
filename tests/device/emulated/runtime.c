/* Executes translated PTX: threads of a block are fibers that take turns, from one place where they meet to the next.

   Orders of threads: ascending, descending, or another one after every meeting. Where it is asked for, every access to memory is
   compared with those of other threads since the last barrier, and with those of other blocks: two of them to one place, one of
   which writes, are a race, as nothing says which comes first. With COUNTED, instructions of the first thread of each team are counted by
   kind (translate.KINDS). Included before the translation is compiled; `kernel` follows. */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

typedef struct {
  uint32_t tid[3], ntid[3], ctaid[3], nctaid[3];
  uint32_t number; /* in its block, from 1 */
  int begun, done, at, turn; /* at: the meeting it waits at; turn: which of two exchanges it uses next */
  long counts[6];
  char *stack;
  jmp_buf context;
} Thread;

enum { THREADS = 1024, STACK = 1 << 22 };
static Thread *running;
static uint32_t exchange[2][THREADS];
static char **arguments;

enum { PLACES = 1 << 16 };
static char skipped[PLACES]; /* barriers that are left out, to see whether that is noticed */
static char reached[PLACES]; /* meetings that a launch came to */
static long barriers, reads, writes, counted[6];
#ifdef COUNTED
#define COUNTS(kind) t->counts[kind]++;
#else
#define COUNTS(kind)
#endif

/* Fibers: begun by a context of their own, switched by jumps, which ask nothing of the system. */
static jmp_buf home;
static void wait_at(Thread *t, int place) {
  t->at = place;
  if (!_setjmp(t->context)) _longjmp(home, 1);
}

/* Threads meet in teams, the rows of a block; a barrier of a team of one is none. */
#define MEET(place) { if (t->ntid[0] > 1) { reached[place] = 1; if (!skipped[place]) wait_at(t, place); } }
#define SHUFFLE(target, value, far, place) \
  { uint32_t *slots = exchange[t->turn]; t->turn ^= 1; slots[t->tid[0]] = (value); wait_at(t, -2 - (place)); target = slots[t->tid[0] ^ (far)]; }

/* Memory that a launch may touch beside the stack of each thread; what is outside counts as a stray access, and so does a write to
   what is constant. A shadow knows, for eight bytes each, who touched them since the last barrier, and which block has written. */
typedef struct { uint32_t read_epoch, reader, write_epoch, writer, launch, block; } Shadow;
typedef struct { char *begin, *end; Shadow *shadow; } Region;
enum { REGIONS = 4096, SEVERAL = 0xFFFFFFFF };
static Region region[REGIONS];
static int regions;
static uint32_t epoch = 1, launches = 0;
static long races, first_race, strays, first_stray;
static int checks, hasty; /* compare accesses; end at the first race */
static jmp_buf ended;
int allow(int count, char **begin, long *bytes, char *constant) { /* sorted by `begin` */
  for (int k = 0; k < regions; k++) free(region[k].shadow);
  regions = 0;
  if (count > REGIONS) return 1;
  for (int k = 0; k < count; k++) {
    Shadow *shadow = constant[k] ? 0 : calloc(bytes[k] / 8 + 2, sizeof *shadow);
    region[regions++] = (Region){begin[k], begin[k] + bytes[k], shadow};
  }
  return 0;
}
typedef struct { char *begin; long bytes; } Constant;
static Constant constants[]; /* of the PTX; the last is empty */

static Region *found(char *place, int size) {
  static Region *last = region;
  if (place >= last->begin && place + size <= last->end) return last;
  int low = 0, high = regions; /* the last region that begins at or before `place` */
  while (high - low > 1) { int middle = (low + high) / 2; if (region[middle].begin <= place) low = middle; else high = middle; }
  if (regions && place >= region[low].begin && place + size <= region[low].end) return last = &region[low];
  return 0;
}

static void touch(Thread *t, char *place, int size, int line, int writing) {
  if (place >= t->stack && place + size <= t->stack + STACK) return;
  Region *here = found(place, size);
  if (!here) {
    for (Constant *one = constants; one->bytes && !writing; one++)
      if (place >= one->begin && place + size <= one->begin + one->bytes) return;
    if (!strays++) first_stray = line;
    return;
  }
  if (!here->shadow) { if (writing && !strays++) first_stray = line; return; }
  Shadow *one = here->shadow + ((place - here->begin) >> 3);
  uint32_t me = t->number;
  int clash = (one->write_epoch == epoch && one->writer != me) || (one->launch == launches && one->block != t->ctaid[0]);
  if (writing) {
    clash |= one->read_epoch == epoch && one->reader != me;
    one->write_epoch = epoch; one->writer = me; one->launch = launches; one->block = t->ctaid[0];
  } else {
    one->reader = one->read_epoch != epoch || one->reader == me ? me : SEVERAL;
    one->read_epoch = epoch;
  }
  if (clash && !races++) {
    first_race = line;
    if (hasty) _longjmp(ended, 1);
  }
}
#define READS(place, size, line) { reads++; if (checks) touch(t, place, size, line, 0); }
#define WRITES(place, size, line) { writes++; if (checks) touch(t, place, size, line, 1); }

static uint64_t bits_f64_uint64_t(double x) { uint64_t y; memcpy(&y, &x, 8); return y; }
static int64_t bits_f64_int64_t(double x) { int64_t y; memcpy(&y, &x, 8); return y; }
static uint32_t bits_f32_uint32_t(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
static int32_t bits_f32_int32_t(float x) { int32_t y; memcpy(&y, &x, 4); return y; }
static double as_f64(uint64_t x) { double y; memcpy(&y, &x, 8); return y; }
static float as_f32(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
static double coarse(double x) { return as_f64(bits_f64_uint64_t(x) & 0xFFFFFFFF00000000ULL); }
static uint32_t leading_zeros(uint64_t x, int width) { return x == 0 ? width : __builtin_clzll(x) - (64 - width); }
static uint64_t field_mask(uint32_t length) { return length >= 64 ? ~0ULL : (1ULL << length) - 1; }
static uint64_t inserted(uint64_t a, uint64_t b, uint32_t place, uint32_t length) {
  uint64_t mask = field_mask(length) << place; return (b & ~mask) | (a << place & mask);
}
static uint64_t extracted(uint64_t a, uint32_t place, uint32_t length) { return a >> place & field_mask(length); }
static uint32_t carry_add(uint32_t a, uint32_t b, uint32_t *carry, int takes, int keeps) {
  uint64_t sum = (uint64_t)a + b + (takes ? *carry : 0); if (keeps) *carry = sum >> 32; return sum;
}
static uint32_t carry_sub(uint32_t a, uint32_t b, uint32_t *carry, int takes, int keeps) {
  uint64_t rest = (uint64_t)a - b - (takes ? *carry : 0); if (keeps) *carry = rest >> 32 & 1; return rest;
}
/* Conversions of floats end at the limits, and at zero for NaN, as the hardware's do. */
static int32_t to_s32(double x) { return isnan(x) ? 0 : x <= INT32_MIN ? INT32_MIN : x >= INT32_MAX ? INT32_MAX : (int32_t)x; }
static uint32_t to_u32(double x) { return isnan(x) || x <= 0 ? 0 : x >= UINT32_MAX ? UINT32_MAX : (uint32_t)x; }
static int64_t to_s64(double x) { return isnan(x) ? 0 : x <= -0x1p63 ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : (int64_t)x; }
static uint64_t to_u64(double x) { return isnan(x) || x <= 0 ? 0 : x >= 0x1p64 ? UINT64_MAX : (uint64_t)x; }

static void kernel(Thread *t, char **P);
static void begin(void) { Thread *t = running; kernel(t, arguments); t->done = 1; _longjmp(home, 1); }
static void __attribute__((noinline)) resume(Thread *t) {
  if (_setjmp(home)) return;
  if (t->begun) _longjmp(t->context, 1);
  t->begun = 1;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = t->stack; context.uc_stack.ss_size = STACK; context.uc_link = 0;
  makecontext(&context, begin, 0);
  setcontext(&context);
}

enum { ASCENDING, DESCENDING, RANDOM };
static uint64_t state;
static int drawn(int below) { state = state * 6364136223846793005ULL + 1442695040888963407ULL; return (int)((state >> 33) % below); }

static Thread *threads;
static int failed;
static void __attribute__((noinline)) run_block(int block, int blocks, int width, int height, int order) {
  static int turns[THREADS];
  int count = width * height;
  epoch++;
  for (int k = 0; k < count; k++) {
    Thread *t = &threads[k];
    char *stack = t->stack;
    memset(t, 0, sizeof *t);
    t->stack = stack; t->number = k + 1;
    t->tid[0] = k % width; t->tid[1] = k / width; t->ctaid[0] = block; t->nctaid[0] = blocks;
    t->ntid[0] = width; t->ntid[1] = height; t->ntid[2] = t->nctaid[1] = t->nctaid[2] = 1;
    turns[k] = order == DESCENDING ? count - 1 - k : k;
  }
  for (int left = count; left && !failed;) {
    int place = -1;
    left = 0;
    if (order == RANDOM)
      for (int k = count - 1; k > 0; k--) { int j = drawn(k + 1), kept = turns[k]; turns[k] = turns[j]; turns[j] = kept; }
    for (int k = 0; k < count; k++) {
      running = &threads[turns[k]];
      if (running->done) continue;
      resume(running);
      if (running->done) {
        if (running->tid[0] == 0) for (int kind = 0; kind < 6; kind++) counted[kind] += running->counts[kind];
        failed |= left > 0; /* others wait for it */
        continue;
      }
      failed |= (left > 0 && running->at != place) || left != k;
      place = running->at;
      left++;
    }
    if (left && place >= 0) { barriers++; epoch++; }
  }
}

/* Run all blocks, of width × height threads, one after the other. Returns 0, or 1 where threads met at different places.
   `report` gets barriers, reads, writes, races and the line of the first one, stray accesses and the line of the first one, then
   counts; `seen`, which meetings were reached. */
int launch(int blocks, int width, int height, char **given, int order, uint64_t seed, int left_out, int *places, int compares, int ends, long *report, char *seen, int meetings) {
  if (width * height > THREADS) return 2;
  if (!threads) {
    threads = calloc(THREADS, sizeof *threads);
    /* Pages that no thread comes to are never there, and not reserved either: a process with many entries could not fork. */
    char *stacks = mmap(0, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int k = 0; k < THREADS; k++) threads[k].stack = stacks + (size_t)k * STACK;
  }
  memset(skipped, 0, sizeof skipped);
  memset(reached, 0, sizeof reached);
  for (int k = 0; k < left_out; k++) skipped[places[k]] = 1;
  arguments = given; state = seed; checks = compares; hasty = ends; failed = 0; launches++;
  barriers = reads = writes = races = first_race = strays = first_stray = 0;
  memset(counted, 0, sizeof counted);
  if (!_setjmp(ended))
    for (int block = 0; block < blocks && !failed; block++) run_block(block, blocks, width, height, order);
  long found[7] = {barriers, reads, writes, races, first_race, strays, first_stray};
  memcpy(report, found, sizeof found);
  memcpy(report + 7, counted, sizeof counted);
  memcpy(seen, reached, meetings);
  return failed;
}
