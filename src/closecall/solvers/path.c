/* The compiled inner loop of a path: one stage at a cut, and the derivative of its minimum with respect to the cut.
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

/* The rows of a path and the window of its stages, as `KernelRows` in path.py. `room` has `room_of` numbers, zero at first;
 * between two calls it keeps the minus margins. */
typedef struct {
    const double *across, *penalty, *mass;
    int64_t rows, size, loss, kind;
    double threshold, ramp, kink;
    double *room;
} Rows;

enum { RESULTS = 5 }; /* a state is (RESULTS,), coordinates (size,), and a factor with its corrections */

static int64_t padded_to_four(int64_t size) { return (size + 3) / 4 * 4; }

/* Numbers in a state, and in the scratch memory of a path. */
EXPORT int64_t state_of(int64_t size) {
    return RESULTS + size + padded_to_four(size) * padded_to_four(size) + MEMORY * (2 * size + 1);
}

EXPORT int64_t room_of(int64_t rows, int64_t size) {
    const int64_t wide = padded_to_four(size);
    return 5 * rows + wide * wide + (wide + 2) * BLOCK + 4 * size;
}

/* `known` counts the corrections of the state's factor; it is -1 if there is none. */
static Task task_of(const Rows *on, double *state, int64_t known) {
    const int64_t n = on->rows, d = on->size, wide = padded_to_four(d);
    double *room = on->room;
    Task task = {.rows = n, .size = d, .across = on->across, .loss = (int)on->loss, .threshold = on->threshold,
                 .kink = on->kink, .mass = on->mass, .penalty = on->penalty, .kind = (int)on->kind, .ramp = on->ramp,
                 .padded = wide, .factored = known >= 0, .known = known > 0 ? (int)known : 0};
#define TAKE(count) (room += (count), room - (count))
    task.v = TAKE(n), task.dv = TAKE(n), task.first = TAKE(n), task.second = TAKE(n), task.size_of = TAKE(n);
    task.matrix = TAKE(wide * wide), task.packed = TAKE((wide + 2) * BLOCK);
    task.gradient = TAKE(d), task.before = TAKE(d), task.diagonal = TAKE(d), task.step = TAKE(d);
    task.factor = state + RESULTS + d, task.moved = task.factor + wide * wide;
    task.turned = task.moved + MEMORY * d, task.inverse = task.turned + MEMORY * d;
    return task;
}

/* Minimise at one cut from the coordinates of a state, in place; its results are the mass inside, the value, the errors, the
 * evaluations and the steps. Return how many corrections the last factor has. */
EXPORT int64_t settle(const Rows *on, double cut, double tol, int64_t steps, int64_t known, double *state) {
    Task task = task_of(on, state, known);
    Sums sums = descend(&task, state + RESULTS, cut, tol, steps);
    state[0] = sums.inside, state[1] = sums.value, state[2] = sums.errors;
    state[3] = (double)task.looks, state[4] = (double)sums.steps;
    return task.factored ? task.known : -1;
}

/* Return the derivative of the mass inside at the minimum of a state, and write that of the minimum to `drift`. `moved` says
 * that the last stage in this room ended elsewhere. */
EXPORT double slope(const Rows *on, double cut, int64_t known, int64_t moved, double *state, double *drift) {
    Task task = task_of(on, state, known);
    if (moved) margins(&task, state + RESULTS, task.v);
    double found = slope_at(&task, cut);
    memcpy(drift, task.step, sizeof(double) * (size_t)on->size);
    return found;
}

/* Write the losses at c, with rounded kinks. */
EXPORT void losses(const Rows *on, const double *c, double *out) {
    Task task = task_of(on, out, -1);
    margins(&task, c, task.v);
    plain_losses(&task, out);
}
