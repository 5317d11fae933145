// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: all public headers.
#ifndef TIDEMARK_TIDEMARK_H
#define TIDEMARK_TIDEMARK_H

#include "tidemark/base.h"
#include "tidemark/budget.h"
#include "tidemark/cache.h"
#include "tidemark/cpu.h"
#include "tidemark/device.h"
#include "tidemark/format.h"
#include "tidemark/graph.h"
#include "tidemark/ledger.h"
#include "tidemark/machine.h"
#include "tidemark/machine_ops.h"
#include "tidemark/memory.h"
#include "tidemark/monitor.h"
#include "tidemark/pinned.h"
#include "tidemark/plan.h"
#include "tidemark/problem.h"
#include "tidemark/profile.h"
#include "tidemark/quota.h"
#include "tidemark/replay.h"
#include "tidemark/report.h"
#include "tidemark/steps.h"
#include "tidemark/tensor.h"
#include "tidemark/trace.h"

#endif
