/* From negated margins to the pull of each example, one problem at a time and in place: the compiled counterpart of
 * kernels.py.
 *
 * Selection is exact. A row remembers where its k-th key was at the last step. Counting passes narrow a bracket around it
 * until few keys are inside, and only these are searched. If the k-th key is not among them, the bracket is widened, and
 * then the whole row is searched; the result never depends on the bracket. If k is small, keys and slopes are only
 * computed for the examples below the bracket's upper end, and a gradient of few examples is summed over these alone.
 */
#if defined(__GNUC__) && !defined(__clang__)
/* By default, a comparison might trap, so loops that select are not vectorised; this option makes them 2.8 times as fast. */
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define CHUNK 64 /* keys compared together before those inside the bracket are copied */
#define FAR 40   /* beyond this margin, the keys of correct examples are all 2 */
#define STEEP 60 /* as in kernels.py */
enum { LOGISTIC = 0, HINGE = 1 };
enum { AVERAGE = 0, CLOSE = 1, LARGEST = 2, TOP = 3, KEYS = 4 };

#include "exponential.h"

#define REAL float
#define NAME(x) x##_f32
#define LARGE FLT_MAX
#define EPSILON FLT_EPSILON
#include "select.h"
#ifndef PARTS_ALONE /* the network only needs the selection, in float32 */
#include "pull.h"
#undef REAL
#undef NAME
#undef LARGE
#undef EPSILON
#define REAL double
#define NAME(x) x##_f64
#define LARGE DBL_MAX
#define EPSILON DBL_EPSILON
#include "select.h"
#include "pull.h"
#endif
