// Headwise: multi-head attention. The only header a user includes.
#ifndef HEADWISE_HEADWISE_H_
#define HEADWISE_HEADWISE_H_

#include "headwise/attention.h"
#include "headwise/block_mask.h"
#include "headwise/config.h"
#include "headwise/info.h"
#include "headwise/kv_cache.h"
#include "headwise/linear.h"
#include "headwise/merge.h"
#include "headwise/multi_head_attention.h"
#include "headwise/rotary.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"
#include "headwise/workspace.h"

#endif  // HEADWISE_HEADWISE_H_
