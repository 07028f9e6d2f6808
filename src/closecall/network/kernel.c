/* Trains the paper's network, one network at a time: forward pass, selection, backward pass, Adam. layers.py does the same.
 *
 * One array holds the inputs and activations: for each chunk of samples the rows [x, 1, h1, h2], of which every layer
 * multiplies a prefix. The inputs are filled in once and shared by all networks; a chunk fits in the L2 cache. If few
 * examples have a gradient (late in a close-k run, only k), their columns are gathered for the backward pass.
 */
#define PARTS_ALONE
#include "../solvers/pull.c" /* exp, search, cut, keys_of: one selection for linear models and networks */

#include "products.h"
#include "choose.h"

/* If at most this share of the examples has a gradient, gathering them beats a backward pass through all. */
#define FEW_PULL 0.6

typedef struct {
    int64_t features, hidden, outputs, samples; /* features: without the ones of the intercept */
    int64_t width, chunks;                      /* samples in a chunk, a multiple of 16 */
    float *seen;                                /* (chunks, features + 1 + 2 hidden, width) */
    const float *signs;                         /* (samples,) labels in {-1, +1}; NULL if there are classes */
    const int32_t *classes;                     /* (samples,) or NULL */
    const float *factors;                       /* (samples,) masses, or NULL: all one */
    const double *masses;                       /* the same, or NULL */
    double total;
    const float *penalized; /* (parameters,) 1, or 0 for free intercepts */
    float *scores;          /* (outputs, chunks * width) */
    float *pulls;           /* (samples,) in whole vectors */
    float *deltas;          /* (2 hidden + outputs, width) */
    float *few;             /* (features + 1 + 2 hidden + outputs, width) */
    float *gradient;        /* (parameters,) */
    float *scratch;         /* (3, samples) in whole vectors */
    double *room_mass;      /* (samples,) with masses */
    int32_t *places;        /* (2, samples): chosen examples and where their columns are; with classes 3 */
} Job;

typedef struct {
    float *weights, *mean, *square; /* (parameters,), rows [hidden: x 1], [hidden: x 1 h1], [outputs: x 1 h1 h2] */
    int32_t loss, kind;
    double alpha, m;
    double hint[3];
} Network;

INLINE int64_t seen_by(const Job *job, int layer) { return job->features + 1 + layer * job->hidden; }
INLINE int64_t units(const Job *job, int layer) { return layer < 2 ? job->hidden : job->outputs; }
INLINE int64_t offset(const Job *job, int layer) {
    return layer == 0 ? 0 : job->hidden * (layer == 1 ? seen_by(job, 0) : seen_by(job, 0) + seen_by(job, 1));
}

INLINE void forward(const Job *job, const float *weights) {
    int64_t height = seen_by(job, 2), width = job->width;
    for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
        float *z = job->seen + chunk * height * width;
        for (int layer = 0; layer < 3; layer++) {
            Terms terms = {weights + offset(job, layer), seen_by(job, layer), 1, z, seen_by(job, layer), width};
            float *out = layer < 2 ? z + seen_by(job, layer) * width : job->scores + chunk * width;
            sums(&terms, 1, units(job, layer), width, out, layer < 2 ? width : job->chunks * width,
                 layer < 2 ? RELU : PLAIN, NULL, 0);
        }
    }
}

/* Adds the contribution of `samples` columns of z to the gradient; `pulls` are derivatives with respect to the
 * scores. */
INLINE void backward(const Job *job, const float *weights, const float *z, const float *pulls, int64_t pull_width,
                     int64_t samples) {
    int64_t hidden = job->hidden, width = job->width;
    const float *second = weights + offset(job, 1), *last = weights + offset(job, 2);
    for (int layer = 2; layer >= 0; layer--) {
        float *delta = job->deltas + layer * hidden * width;
        if (layer < 2) { /* derivatives from the layers above */
            int64_t column = seen_by(job, layer);
            Terms terms[2] = {{last + column, 1, seen_by(job, 2), pulls, job->outputs, pull_width},
                              {second + column, 1, seen_by(job, 1), job->deltas + hidden * width, hidden, width}};
            sums(terms, layer == 0 ? 2 : 1, hidden, samples, delta, width, GATE, z + column * width, width);
        }
        dots(layer < 2 ? delta : pulls, layer < 2 ? width : pull_width, units(job, layer), z, width,
             seen_by(job, layer), samples, job->gradient + offset(job, layer));
    }
}

/* Converts the derivative with respect to the margin to derivatives with respect to the scores (outputs, samples), for
 * the example at `place`. */
INLINE void spread(const Job *job, int64_t place, float pull, float *to, int64_t step, const int32_t *second) {
    if (job->signs) {
        to[0] = -pull * job->signs[place];
        return;
    }
    for (int64_t c = 0; c < job->outputs; c++) to[c * step] = 0;
    to[job->classes[place] * step] = -pull;
    to[second[place] * step] = pull;
}

INLINE void margins(const Job *job, int32_t *second) {
    int64_t wide = job->chunks * job->width;
    if (job->signs) {
        float *restrict pulls = job->pulls;
        for (int64_t i = 0; i < job->samples; i++) pulls[i] = -job->signs[i] * job->scores[i];
        return;
    }
    for (int64_t i = 0; i < job->samples; i++) {
        int32_t mine = job->classes[i], best = mine == 0;
        for (int32_t c = 0; c < job->outputs; c++)
            if (c != mine && job->scores[c * wide + i] > job->scores[best * wide + i]) best = c;
        second[i] = best;
        job->pulls[i] = job->scores[best * wide + i] - job->scores[mine * wide + i];
    }
}

/* Backward pass through only the `number` examples at `places`. */
INLINE void backward_few(const Job *job, const float *weights, int64_t number, const int32_t *second) {
    int64_t height = seen_by(job, 2), width = job->width;
    const int32_t *places = job->places, *columns = places + job->samples;
    for (int64_t from = 0; from < number; from += width) {
        int64_t count = number - from < width ? number - from : width;
        int64_t padded = (count + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
        float *pulls = job->few + height * width;
        for (int64_t row = 0; row < height; row++) {
            const float *source = job->seen + row * width;
            float *to = job->few + row * width;
            for (int64_t i = 0; i < count; i++) to[i] = source[columns[from + i]];
            for (int64_t i = count; i < padded; i++) to[i] = 0;
        }
        for (int64_t row = 0; row < job->outputs; row++)
            for (int64_t i = count; i < padded; i++) pulls[row * width + i] = 0;
        for (int64_t i = 0; i < count; i++)
            spread(job, places[from + i], job->pulls[places[from + i]], pulls + i, width, second);
        backward(job, weights, job->few, pulls, width, padded);
    }
}

INLINE void backward_all(const Job *job, const float *weights, const int32_t *second) {
    int64_t height = seen_by(job, 2), width = job->width, wide = job->chunks * width;
    if (job->signs) {
        float *restrict to = job->scores;
        for (int64_t i = 0; i < job->samples; i++) to[i] = -job->pulls[i] * job->signs[i];
    } else {
        for (int64_t i = 0; i < job->samples; i++) spread(job, i, job->pulls[i], job->scores + i, wide, second);
    }
    for (int64_t row = 0; row < job->outputs; row++)
        for (int64_t i = job->samples; i < wide; i++) job->scores[row * wide + i] = 0;
    for (int64_t chunk = 0; chunk < job->chunks; chunk++)
        backward(job, weights, job->seen + chunk * height * width, job->scores + chunk * width, wide, width);
}

/* Square roots by Newton's method from a guess at the exponent, exact to the last bit above 1e-37 (below, Adam's
 * epsilon dominates): no other method works on the vectors of every processor. */
INLINE Vec roots(Vec x) {
    Vec half = 0.5f * x, y = (Vec)(0x5f3759df - ((Ints)x >> 1)), largest = {0};
    y = y * (1.5f - half * y * y);
    y = y * (1.5f - half * y * y);
    y = y * (1.5f - half * y * y);
    Vec found = x * y;
    found += 0.5f * y * (x - found * found);
    return ONE_OF(x < largest + FLT_MAX, found, x);
}

/* Adam (Kingma & Ba 2015) for eight weights; `rate` and `correction` depend only on the step. */
INLINE void descend_some(float *w, float *mean, float *square, const float *gradient, const float *penalized,
                         float alpha, float rate, float correction) {
    Vec at = load(w), g = load(gradient) + alpha * load(penalized) * at, first = load(mean), second = load(square);
    first += 0.1f * (g - first);
    second = 0.999f * second + 0.001f * (g * g);
    store(mean, first);
    store(square, second);
    store(w, at - rate * first / (roots(second) * correction + 1e-8f));
}

INLINE void descend(const Job *job, const Network *net, int64_t number, float rate, float correction) {
    float alpha = (float)net->alpha, rest[5][LANES] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= number; i += LANES)
        descend_some(net->weights + i, net->mean + i, net->square + i, job->gradient + i, job->penalized + i, alpha,
                     rate, correction);
    float *from[3] = {net->weights + i, net->mean + i, net->square + i};
    size_t left = (size_t)(number - i) * sizeof(float);
    for (int part = 0; part < 3; part++) memcpy(rest[part], from[part], left);
    memcpy(rest[3], job->gradient + i, left);
    memcpy(rest[4], job->penalized + i, left);
    descend_some(rest[0], rest[1], rest[2], rest[3], rest[4], alpha, rate, correction);
    for (int part = 0; part < 3; part++) memcpy(from[part], rest[part], left);
}

/* The gradient of the aggregate with respect to the weights, from `pulls`. */
INLINE void slopes(const Job *job, const float *weights, const int32_t *second) {
    int64_t n = job->samples, height = seen_by(job, 2), width = job->width, busy = 0;
    int64_t number = offset(job, 2) + job->outputs * height;
    int32_t *places = job->places, *columns = places + n;
    for (int64_t i = 0; i < n; i++) busy += job->pulls[i] != 0;
    for (int64_t i = 0; i < number; i++) job->gradient[i] = 0;
    if ((double)busy <= FEW_PULL * (double)n) {
        int64_t found = 0;
        for (int64_t i = 0; i < n && found < busy; i++)
            if (job->pulls[i] != 0) {
                columns[found] = (int32_t)(i / width * height * width + i % width);
                places[found++] = (int32_t)i;
            }
        backward_few(job, weights, busy, second);
    } else {
        backward_all(job, weights, second);
    }
}

/* Takes one network through `steps` steps; k, rates and corrections have shape (steps,). */
EXPORT CLONES void network_walk(const Job *job, Network *net, int64_t steps, const double *k, const float *rates,
                                const float *corrections) {
    int64_t n = job->samples, number = offset(job, 2) + job->outputs * seen_by(job, 2);
    int32_t *second = job->places + 2 * n;
    for (int64_t step = 0; step < steps; step++) {
        forward(job, net->weights);
        margins(job, second);
        choose(job->pulls, n, net->loss, net->kind, k[step], net->m, job->total, job->factors, job->masses,
               job->scratch, job->room_mass, net->hint);
        slopes(job, net->weights, second);
        descend(job, net, number, rates[step], corrections[step]);
    }
}
