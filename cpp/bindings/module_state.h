// What all calls of a module share.
#ifndef HEADWISE_BINDINGS_MODULE_STATE_H_
#define HEADWISE_BINDINGS_MODULE_STATE_H_

#include "headwise/status.h"
#include "headwise/workspace.h"

namespace headwise {
namespace bindings {

// JavaScript runs one call at a time, so one scratch block serves all objects.
Workspace& SharedWorkspace();

// Remembers the status for lastError() and answers its code.
int Keep(const Status& status);

}  // namespace bindings
}  // namespace headwise

#endif  // HEADWISE_BINDINGS_MODULE_STATE_H_
