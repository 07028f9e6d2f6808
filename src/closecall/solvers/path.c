/* The compiled inner loop of a path: one stage at a cut, and how its minimum moves with the cut.
 *
 * The NumPy version is `Walk` in stages.py, which also places the cuts; stages.h and looks.h hold the loops.
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

/* The arguments that all calls share. `room` has `room_of` numbers; between two calls it keeps the minus margins. */
#define ROWS \
    const double *across, int64_t rows, int64_t size, int32_t loss, double threshold, const double *penalty, \
        const double *mass, int32_t kind, double ramp, double kink, double *room
#define GIVEN across, rows, size, loss, threshold, penalty, mass, kind, ramp, kink, room

static int64_t padded_to_four(int64_t size) { return (size + 3) / 4 * 4; }

/* Numbers of a factor with its corrections, and of the scratch memory of a path. */
EXPORT int64_t factor_of(int64_t size) {
    return padded_to_four(size) * padded_to_four(size) + MEMORY * (2 * size + 1);
}

EXPORT int64_t room_of(int64_t rows, int64_t size) {
    const int64_t wide = padded_to_four(size);
    return 5 * rows + wide * wide + (wide + 2) * BLOCK + 4 * size;
}

static Task task_of(ROWS, double *factor, int64_t known) {
    Task task = {.rows = rows, .size = size, .across = across, .loss = loss, .threshold = threshold, .kink = kink,
                 .mass = mass, .penalty = penalty, .kind = kind, .ramp = ramp, .padded = padded_to_four(size)};
    const int64_t square = task.padded * task.padded;
#define TAKE(count) (room += (count), room - (count))
    task.v = TAKE(rows), task.dv = TAKE(rows), task.first = TAKE(rows), task.second = TAKE(rows), task.size_of = TAKE(rows);
    task.matrix = TAKE(square), task.packed = TAKE((task.padded + 2) * BLOCK);
    task.gradient = TAKE(size), task.before = TAKE(size), task.diagonal = TAKE(size), task.step = TAKE(size);
    task.factor = factor, task.moved = factor + square, task.turned = task.moved + MEMORY * size;
    task.inverse = task.turned + MEMORY * size;
    task.factored = known >= 0, task.known = known > 0 ? (int)known : 0;
    return task;
}

/* Minimise at one cut from c, in place. `known` counts the corrections of the given factor, -1 if there is none; the return
 * value counts those of the last one. `found` receives the mass inside, the value, the errors, the evaluations and the
 * steps. */
EXPORT int64_t settle(ROWS, double cut, double tol, int64_t steps, double *c, double *factor, int64_t known, double *found) {
    Task task = task_of(GIVEN, factor, known);
    Sums sums = descend(&task, c, cut, tol, steps);
    found[0] = sums.inside, found[1] = sums.value, found[2] = sums.errors;
    found[3] = (double)task.looks, found[4] = (double)sums.steps;
    return task.factored ? task.known : -1;
}

/* Return the derivative of the mass inside at the minimum c, and write that of the minimum to `drift`. `moved` says that
 * the last stage in this room ended elsewhere. */
EXPORT double slope(ROWS, double cut, const double *c, double *factor, int64_t known, int32_t moved, double *drift) {
    Task task = task_of(GIVEN, factor, known);
    if (moved) margins(&task, c, task.v);
    double found = slope_at(&task, cut);
    memcpy(drift, task.step, sizeof(double) * (size_t)size);
    return found;
}

/* Write the losses at c, with rounded kinks. */
EXPORT void losses(ROWS, const double *c, double *out) {
    Task task = task_of(GIVEN, NULL, -1);
    margins(&task, c, task.v);
    plain_losses(&task, out);
}
