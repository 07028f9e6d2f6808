/* Evaluate the rows of a task at a cut: sums, gradient and Hessian; included by path.c.
 *
 * Sums consist of eight partial sums in a fixed order and nothing is fused, whatever vectors the processor has, so results
 * are the same everywhere.
 */
#include "exponential.h"

enum { LOGISTIC = 0, HINGE = 1 };
enum { CLOSE = 0, ABOVE = 1, ALL = 2 };
#define LANES 8      /* rows come in multiples of this; the last ones may have no mass */
#define BLOCK 256    /* rows in a weighted block, which stays in cache */
#define MEMORY 8     /* the number of steps that can correct a kept factor */
#define DAMPING 0.1  /* the first damping, as in stages.py */

/* The rows of a path and the window of its stages, as in `KernelRows` in path.py. */
typedef struct {
    const double *across;          /* (size, rows): negated signed rows, so that products with c are negated margins */
    const double *penalty, *mass;  /* (size,) and (rows,) */
    int64_t rows, size;            /* rows are a multiple of LANES */
    int64_t loss, kind;            /* kind: the losses that a cut keeps, CLOSE to T, ABOVE minus the cut, or ALL */
    double threshold, ramp, kink;  /* T, the width of a ramp as a share of the cut or of T, and that of a rounded kink */
    double *room;                  /* `room_of` numbers, zero at first; between two calls it keeps the negated margins */
} Rows;

typedef struct {
    const Rows *on;
    int64_t looks;   /* evaluations so far */
    int64_t padded;  /* the size, rounded up to a multiple of four */
    double *v, *dv, *first, *second, *size_of;    /* (rows,): negated margins, their change, and derivatives */
    double *packed;                               /* (padded + 2, BLOCK) */
    double *matrix, *factor;                      /* (padded, padded): lower triangle, and the transposed factor */
    double *gradient, *before, *diagonal, *step;  /* (size,) */
    double *moved, *turned, *inverse;             /* (MEMORY, size): steps since the factor, changes of the gradient; (MEMORY,) */
    int factored, known;                          /* whether there is a factor, and how many steps correct it */
} Task;

typedef struct {
    double value, inside, errors;
    int64_t steps;
} Sums;

typedef struct {
    int kind;
    double low, high, width, spread;
} Window;

/* Eight partial sums. As a vector they stay in registers; compilers without vector types use a loop. */
#ifdef __GNUC__
typedef double Lane __attribute__((vector_size(LANES * sizeof(double)), aligned(8), may_alias));
#define AT(p) (*(const Lane *)(p))
#define ADD(sum, a, b) (sum) += (a) * (b)
#else
typedef struct {
    double part[LANES];
} Lane;
#define AT(p) (*(const Lane *)(p))
#define ADD(sum, a, b) \
    for (int j = 0; j < LANES; j++) (sum).part[j] += (a).part[j] * (b).part[j]
#endif

INLINE double total(const Lane *sums) {
    const double *lane = (const double *)sums;
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* log(1 + t) for t in [0, 1] as 2 atanh(t / (2 + t)): written out so that it vectorises. */
INLINE double log_one_and(double t) {
    static const double terms[] = {1.0 / 33, 1.0 / 31, 1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19,
                                   1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
    double z = t / (2.0 + t), s = z * z, p = 1.0 / 35;
    for (int j = 0; j < 16; j++) p = p * s + terms[j];
    return 2.0 * z * (1.0 + s * p);
}

/* The loss of a negated margin, its slope and its second derivative. */
INLINE void loss_at(int loss, double kink, double v, double *l, double *p, double *b) {
    if (loss == LOGISTIC) {
        double t = exp_f64(v < 0 ? v : -v), q = 1.0 / (1.0 + t);
        *l = (v > 0 ? v : 0) + log_one_and(t);
        *p = v > 0 ? q : t * q;
        *b = t * q * q;
    } else {
        double rest = 1.0 + v + 0.5 * kink, part = rest < 0 ? 0 : rest; /* a parabola around the kink */
        part = part > kink ? kink : part;
        *p = part / kink;
        *l = (rest - 0.5 * part) * *p;
        *b = (rest > 0 ? 1.0 / kink : 0.0) * (rest < kink ? 1.0 : 0.0);
    }
}

INLINE double dot(const double *a, const double *b, int64_t rows) {
    Lane sum = {0};
    for (int64_t i = 0; i < rows; i += LANES) { ADD(sum, AT(a + i), AT(b + i)); }
    return total(&sum);
}

/* Compute the charges of some rows at their negated margins, their shares, and their first and second derivatives. The
 * charge is the integral of the share: a rising ramp at the low edge minus another at the high edge. */
INLINE void charge_rows(
    int loss, double kink, Window window, int64_t count, const double *restrict x, const double *restrict mass,
    double *restrict charge, double *restrict share, double *restrict first, double *restrict second,
    double *restrict size_of) {
    const double half = window.width / 2, steep = 1 / window.width;
    for (int64_t i = 0; i < count; i++) {
        double l, p, b, m = mass[i], s = 1.0, up = 0.0, down = 0.0;
        loss_at(loss, kink, x[i], &l, &p, &b);
        if (window.kind != ALL) {
            double u = l - window.low + half, part = u < 0 ? 0 : u;
            part = part > window.width ? window.width : part;
            up = (u > 0 ? steep : 0.0) * (u < window.width ? 1.0 : 0.0);
            s = part * steep;
            double high = l - window.high + half;
            l = (u - 0.5 * part) * s;
            if (window.kind == CLOSE) {
                part = high < 0 ? 0 : high;
                part = part > window.width ? window.width : part;
                down = (high > 0 ? steep : 0.0) * (high < window.width ? 1.0 : 0.0);
                s -= part * steep;
                l -= (high - 0.5 * part) * (part * steep);
            }
        }
        charge[i] = l;
        share[i] = s;
        first[i] = m * s * p;
        second[i] = m * (s * b + (up - down) * p * p);
        size_of[i] = m * (s * (b + p) + (up + down) * p * p); /* a loss with a kink has no curvature */
    }
}

/* Compute the sums at the negated margins v + t * dv, and the derivatives of each row. */
INLINE Sums look_as(int loss, Window window, Task *task, double t) {
    double x[BLOCK], charge[BLOCK], share[BLOCK], wrong[BLOCK];
    Sums sums = {0, 0, 0, 0};
    task->looks++;
    for (int64_t begin = 0; begin < task->on->rows; begin += BLOCK) {
        const int64_t count = task->on->rows - begin < BLOCK ? task->on->rows - begin : BLOCK;
        const double *mass = task->on->mass + begin, *v = task->v + begin, *dv = task->dv + begin;
        for (int64_t i = 0; i < count; i++) x[i] = v[i] + t * dv[i];
        for (int64_t i = 0; i < count; i++) wrong[i] = x[i] >= 0 ? 1.0 : 0.0;
        charge_rows(
            loss, task->on->kink, window, count, x, mass, charge, share, task->first + begin, task->second + begin,
            task->size_of + begin);
        sums.value += dot(mass, charge, count);
        sums.inside += dot(mass, share, count);
        sums.errors += dot(mass, wrong, count);
    }
    return sums;
}

/* Return the window of a cut: around T, or above minus the cut, so that a larger cut contains more. */
INLINE Window window_at(const Task *task, double cut) {
    int kind = isfinite(cut) ? task->on->kind : ALL;
    double width = kind == ALL ? 1 : task->on->ramp * (kind == CLOSE ? cut : task->on->threshold);
    Window window = {kind, kind == CLOSE ? task->on->threshold - cut : -cut, task->on->threshold + cut, width, 0};
    window.spread = kind == CLOSE ? task->on->ramp : 0; /* the ramp widens with the cut */
    return window;
}

#define LOOK(KIND) \
    window.kind = KIND; \
    return task->on->loss == LOGISTIC ? look_as(LOGISTIC, window, task, t) : look_as(HINGE, window, task, t)

CLONES static Sums look(Task *task, double cut, double t) {
    Window window = window_at(task, cut); /* kinds are constants below, so each gets its own loop */
    if (window.kind == CLOSE) { LOOK(CLOSE); }
    if (window.kind == ABOVE) { LOOK(ABOVE); }
    LOOK(ALL);
}

/* Multiply the columns by coordinates c and add them up for each row, four columns at a time, in their order. */
CLONES static void margins(const Task *task, const double *c, double *out) {
    const int64_t n = task->on->rows, d = task->on->size;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t count = n - begin < BLOCK ? n - begin : BLOCK;
        const double *x = task->on->across + begin;
        double *restrict to = out + begin;
        int64_t k = 0;
        for (int64_t i = 0; i < count; i++) to[i] = 0;
        for (; k + 4 <= d; k += 4)
            for (int64_t i = 0; i < count; i++)
                to[i] = (((to[i] + c[k] * x[k * n + i]) + c[k + 1] * x[(k + 1) * n + i]) + c[k + 2] * x[(k + 2) * n + i]) +
                        c[k + 3] * x[(k + 3) * n + i];
        for (; k < d; k++)
            for (int64_t i = 0; i < count; i++) to[i] += c[k] * x[k * n + i];
    }
}

/* Multiply the weights of the rows by all columns, four at a time. */
CLONES static void pull(const Task *task, const double *weights, double *out) {
    const int64_t n = task->on->rows, d = task->on->size;
    for (int64_t k = 0; k < d; k += 4) {
        Lane s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        const double *x = task->on->across + k * n, *y = k + 1 < d ? x + n : x;
        const double *z = k + 2 < d ? y + n : x, *w = k + 3 < d ? z + n : x;
        for (int64_t i = 0; i < n; i += LANES) {
            const Lane by = AT(weights + i);
            ADD(s0, by, AT(x + i));
            ADD(s1, by, AT(y + i));
            ADD(s2, by, AT(z + i));
            ADD(s3, by, AT(w + i));
        }
        const double sums[4] = {total(&s0), total(&s1), total(&s2), total(&s3)};
        for (int64_t q = 0; q < 4 && k + q < d; q++) out[k + q] = sums[q];
    }
}

/* Multiply two weighted columns by four others at once, and add the products to two rows of a matrix. */
INLINE void dots(const double *a, const double *b, int64_t rows, double *out, int64_t next) {
    Lane s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
    for (int64_t i = 0; i < rows; i += LANES) {
        const Lane one = AT(a + i), two = AT(a + BLOCK + i);
        const Lane x = AT(b + i), y = AT(b + BLOCK + i), z = AT(b + 2 * BLOCK + i), w = AT(b + 3 * BLOCK + i);
        ADD(s0, one, x);
        ADD(t0, two, x);
        ADD(s1, one, y);
        ADD(t1, two, y);
        ADD(s2, one, z);
        ADD(t2, two, z);
        ADD(s3, one, w);
        ADD(t3, two, w);
    }
    out[0] += total(&s0), out[1] += total(&s1), out[2] += total(&s2), out[3] += total(&s3), out += next;
    out[0] += total(&t0), out[1] += total(&t1), out[2] += total(&t2), out[3] += total(&t3);
}

/* Pack the rows of a block that have curvature: columns (size, BLOCK), padded to a multiple of four, followed by second
 * derivatives and sizes. Return their number, padded to lanes. */
static int64_t pack(const Task *task, int64_t begin, int64_t count) {
    const int64_t n = task->on->rows, d = task->on->size;
    int64_t chosen[BLOCK], few = 0, filled, whole;
    for (int64_t i = 0; i < count; i++) {
        chosen[few] = i;
        few += task->size_of[begin + i] > 0;
    }
    whole = 4 * few > 3 * count; /* copying all rows is then faster than choosing some; the others add nothing */
    filled = whole ? count : (few + LANES - 1) / LANES * LANES;
    for (int64_t k = 0; k < d + 2; k++) {
        const double *from = k < d ? task->on->across + k * n : k == d ? task->second : task->size_of;
        double *to = task->packed + (k < d ? k : k - d + task->padded) * BLOCK;
        if (whole) {
            memcpy(to, from + begin, sizeof(double) * (size_t)count);
            continue;
        }
        for (int64_t i = 0; i < few; i++) to[i] = from[begin + chosen[i]];
        for (int64_t i = few; i < filled; i++) to[i] = 0;
    }
    return filled;
}

/* Compute the Hessian (lower triangle) and the sizes by which it is damped, without the penalty. */
CLONES static void assemble(Task *task) {
    const int64_t n = task->on->rows, d = task->on->size, wide = task->padded;
    double room[2 * BLOCK];
    memset(task->diagonal, 0, sizeof(double) * (size_t)d);
    memset(task->matrix, 0, sizeof(double) * (size_t)(wide * wide));
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t count = pack(task, begin, n - begin < BLOCK ? n - begin : BLOCK);
        const double *second = task->packed + wide * BLOCK, *size_of = second + BLOCK;
        for (int64_t k = 0; k < d; k += 2) {
            for (int64_t q = 0; q < 2; q++) {
                const double *column = task->packed + (k + q) * BLOCK;
                double *weighted = room + q * BLOCK;
                for (int64_t i = 0; i < count; i++) weighted[i] = size_of[i] * column[i];
                if (k + q < d) task->diagonal[k + q] += dot(weighted, column, count);
                for (int64_t i = 0; i < count; i++) weighted[i] = second[i] * column[i];
            }
            for (int64_t other = 0; other <= k + 1; other += 4)
                dots(room, task->packed + other * BLOCK, count, task->matrix + k * wide + other, wide);
        }
    }
}
