/* Paths of cuts: the compiled twin of path.py, one task after the other.
 *
 * At a cut e the close-k gradient is the gradient of a function, the sum of clip(l, T - e, T + e); its corners are rounded
 * over a ramp. A stage minimises it by damped Newton steps with a line search; lowering the cut is the paper's decay, and
 * one path visits every k. What a stage is, is in stages.h.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math", "no-math-errno", "fp-contract=off")
#endif
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "exponential.h"

#include "stages.h"

/* Tasks: paths under the masses `run`; their spots are placed under their `own`. Targets k (tasks, targets) are masses,
 * falling, each to be met to its slack. Spots (tasks, targets, size + 4) are c, cut, inside, value and errors.
 * Returns 0, or 1 where memory was lacking. */
EXPORT int64_t paths(
    const double *across, int64_t rows, int64_t size, int32_t loss, double threshold, double kink, const double *penalized,
    int64_t tasks, const double *masses, const int64_t *run, const int64_t *own, const double *alpha, const double *starts,
    int64_t targets, const double *k, const double *slack, double begin, double factor, double ramp, double tol,
    int64_t stage, int64_t steps, double *spots, int64_t *looks) {
    Task task = {.rows = rows, .size = size, .across = across, .loss = loss, .threshold = threshold, .kink = kink,
                 .kind = CLOSE, .tol = tol, .ramp = ramp, .stage = stage};
    Spot own_spots[4];
    double *penalty, *room = prepare(&task, own_spots, 4, &penalty);
    if (!room) return 1;
    Spot here = own_spots[0], found = own_spots[1], high = own_spots[2], low = own_spots[3];
    for (int64_t number = 0; number < tasks; number++) {
        const double *running = masses + run[number] * rows, *truly = masses + own[number] * rows;
        for (int64_t j = 0; j < size; j++) penalty[j] = alpha[number] * penalized[j];
        task.mass = running, task.steps = steps, task.looks = 0;
        settle(&task, &here, starts + number * size, INFINITY, 0);
        double cut = fmax(distance(&task, here.c, begin), LOWEST * threshold); /* losses may all be T */
        int64_t target = 0;
        for (; target < targets && isinf(k[number * targets + target]); target++) /* all of it: the average */
            write_spot(&task, &here, spots + (number * targets + target) * (size + 4));
        here.cut = cut;
        for (; target < targets; cut *= factor) {
            int last = !(cut > LOWEST * threshold) || task.steps <= 0;
            if (!last) settle(&task, &here, here.c, cut, 0);
            keep_factor(&task, 0);
            for (; target < targets && (last || here.inside <= k[number * targets + target]); target++) {
                int64_t at = number * targets + target;
                copy(&task, &found, &here);
                task.mass = truly;
                keep_factor(&task, 1);
                if (!last || truly != running)
                    place(&task, &found, &high, &low, k[at], slack[at], factor, truly == running);
                task.mass = running;
                write_spot(&task, &found, spots + at * (size + 4));
            }
        }
        looks[number] = task.looks;
    }
    free(room);
    return 0;
}

/* Spots that are known, one a task, settled at one ramp (tasks, levels) after the other with the masses k (tasks,) inside,
 * to the share `near` (levels,) of `slack` (tasks,). A kink is rounded over the ramp too. `reached` is the last
 * ramp at which that was possible, 0 if none. Spots are read and written. */
EXPORT int64_t sharpen(
    const double *across, int64_t rows, int64_t size, int32_t loss, double threshold, double kink, const double *penalized,
    int64_t tasks, const double *masses, const int64_t *own, const double *alpha, int32_t kind, const double *k,
    const double *slack, int64_t levels, const double *ramp, const double *near, double factor, double tol, int64_t stage,
    int64_t steps, double *spots, double *reached, int64_t *looks) {
    Task task = {.rows = rows, .size = size, .across = across, .loss = loss, .threshold = threshold, .kink = kink,
                 .tol = tol, .stage = stage};
    Spot own_spots[3];
    double *penalty, *room = prepare(&task, own_spots, 3, &penalty);
    if (!room) return 1;
    Spot found = own_spots[0], high = own_spots[1], low = own_spots[2];
    for (int64_t number = 0; number < tasks; number++) {
        double *spot = spots + number * (size + 4), enough;
        for (int64_t j = 0; j < size; j++) penalty[j] = alpha[number] * penalized[j];
        task.mass = masses + own[number] * rows, task.steps = steps, task.looks = 0;
        memcpy(found.c, spot, sizeof(double) * (size_t)size);
        found.cut = spot[size], reached[number] = 0;
        for (int64_t level = 0; level < levels; level++) {
            task.kind = kind, task.ramp = ramp[number * levels + level], enough = near[level] * slack[number];
            task.kink = fmin(kink, task.ramp * (kind == CLOSE ? found.cut : threshold));
            place(&task, &found, &high, &low, k[number], enough, factor, 0);
            if (!(fabs(found.inside - k[number]) <= enough)) break;
            write_spot(&task, &found, spot);
            reached[number] = task.ramp;
        }
        looks[number] = task.looks;
    }
    free(room);
    return 0;
}
