#include "kernels/exp_table.h"

namespace headwise {
namespace kernels {

ExpTable exp_table = {
    1.44269504088896341f,  // 1 / ln 2
    12582912.0f,           // 1.5 * 2^23
    // ln 2 in two parts; a small integer times the first is exact.
    -0.693359375f, 2.12194440e-4f,
    // exp(r) = 1 + r + c2 r^2 + ... + c6 r^6 for |r| <= ln 2 / 2: our own
    // Remez iteration for the relative error, which is 3.1e-9.
    0.00138145986467f, 0.00836871687973f, 0.0416683880453f, 0.166665206317f,
    0.499999934478f, 1.0f,
    // log of the smallest normal float.
    -87.3365447505531f};

}  // namespace kernels
}  // namespace headwise
