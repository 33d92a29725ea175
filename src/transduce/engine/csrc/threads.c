/* Threads that share the work of a call. They are started at the first call that needs them and wait for the next one;
 * a forked process, which inherits none of them, starts its own. */
#define _GNU_SOURCE
#include "engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_THREADS = 64, SPINS = 2000 };

/* Products that justify another thread. Tests set it. */
EXPORT long transduce_products_per_thread = 1 << 19;

typedef struct {
    Work *work;
    const void *job;
    long count;
    int threads;
} Call;

/* Another library's threads, which are used instead of ours if they are given: a call of OpenMP's */
typedef void StartTeam(void (*function)(void *), void *data, unsigned threads, unsigned flags);
static StartTeam *start_team;
static int (*number_in_team)(void), (*size_of_team)(void);

static pthread_mutex_t one_caller = PTHREAD_MUTEX_INITIALIZER; /* other callers compute alone */
static pthread_mutex_t sleep_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static Call current;
static atomic_long generation; /* rises with every call */
static atomic_int running;     /* threads that have not finished their share */
static int started, sleeping;  /* threads; `sleeping` is guarded by sleep_mutex */
static long born[MAX_THREADS]; /* the generation in which each thread was started */
static int is_registered;

static void run_share(const Call *call, int thread)
{
    const long begin = call->count * thread / call->threads, end = call->count * (thread + 1) / call->threads;
    if (begin < end) call->work(call->job, begin, end);
}

static void pause_briefly(int spin)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (spin % 64 == 63) sched_yield(); /* another process may need this core */
}

static void *serve(void *argument)
{
    const int thread = (int)(intptr_t)argument;
    long seen = born[thread];
    for (;;) {
        for (int spin = 0; spin < SPINS && atomic_load_explicit(&generation, memory_order_acquire) == seen; spin++)
            pause_briefly(spin);
        if (atomic_load_explicit(&generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&sleep_mutex);
            sleeping++;
            while (atomic_load_explicit(&generation, memory_order_acquire) == seen) pthread_cond_wait(&wake, &sleep_mutex);
            sleeping--;
            pthread_mutex_unlock(&sleep_mutex);
        }
        seen = atomic_load_explicit(&generation, memory_order_acquire);
        if (thread < current.threads) run_share(&current, thread);
        atomic_fetch_sub_explicit(&running, 1, memory_order_release);
    }
    return NULL;
}

static void forget_threads(void) /* in a forked process */
{
    started = sleeping = 0;
    start_team = NULL; /* its threads are not inherited either */
    atomic_store(&generation, 0);
    atomic_store(&running, 0);
    pthread_mutex_init(&one_caller, NULL);
    pthread_mutex_init(&sleep_mutex, NULL);
    pthread_cond_init(&wake, NULL);
}

static void start_threads(int wanted)
{
    if (!is_registered) is_registered = pthread_atfork(NULL, NULL, forget_threads) == 0;
    if (!is_registered) return;
    for (; started < wanted - 1; started++) {
        pthread_t handle;
        pthread_attr_t detached;
        born[started + 1] = atomic_load(&generation);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        const int failed = pthread_create(&handle, &detached, serve, (void *)(intptr_t)(started + 1));
        pthread_attr_destroy(&detached);
        if (failed) return;
    }
}

static void run_in_team(void *data)
{
    Call call = *(const Call *)data;
    call.threads = size_of_team();
    run_share(&call, number_in_team());
}

/* Lets the threads of the OpenMP library that torch uses do the work of training: two sets of threads would fight for the
 * cores. Takes GOMP_parallel, omp_get_thread_num and omp_get_num_threads, or NULL for our own threads. */
EXPORT void transduce_use_team(StartTeam *start, int (*number)(void), int (*size)(void))
{
    if (!is_registered) is_registered = pthread_atfork(NULL, NULL, forget_threads) == 0;
    start_team = is_registered ? start : NULL, number_in_team = number, size_of_team = size;
}

/* Divides `count` pieces of work that take `products` multiplications among at most `threads` threads. */
void transduce_parallel(Work *work, const void *job, long count, long products, int threads)
{
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > 1 + products / transduce_products_per_thread) threads = (int)(1 + products / transduce_products_per_thread);
    if (threads > count) threads = (int)count;
    if (threads < 2 || pthread_mutex_trylock(&one_caller) != 0) {
        if (count > 0) work(job, 0, count);
        return;
    }
    if (start_team) {
        Call call = {work, job, count, threads};
        start_team(run_in_team, &call, (unsigned)threads, 0);
        pthread_mutex_unlock(&one_caller);
        return;
    }
    start_threads(threads);
    if (threads > started + 1) threads = started + 1;
    current = (Call){work, job, count, threads};
    atomic_store_explicit(&running, started, memory_order_relaxed);
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    pthread_mutex_lock(&sleep_mutex);
    if (sleeping) pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&sleep_mutex);
    run_share(&current, 0);
    for (int spin = 0; atomic_load_explicit(&running, memory_order_acquire) > 0; spin++) pause_briefly(spin);
    pthread_mutex_unlock(&one_caller);
}
