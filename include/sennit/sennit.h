/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_SENNIT_H
#define SENNIT_SENNIT_H

/* All of sennit. Each header stands alone as well and is its own manual. */
#include <sennit/api.h>
#include <sennit/card.h>
#include <sennit/channel.h>
#include <sennit/conn.h>
#include <sennit/control.h>
#include <sennit/cq.h>
#include <sennit/ctx.h>
#include <sennit/device.h>
#include <sennit/endpoint.h>
#include <sennit/err.h>
#include <sennit/failover.h>
#include <sennit/fault.h>
#include <sennit/loop.h>
#include <sennit/mem.h>
#include <sennit/mw.h>
#include <sennit/op.h>
#include <sennit/qp.h>
#include <sennit/setting.h>
#include <sennit/stream.h>
#include <sennit/stream_half.h>
#include <sennit/srq.h>

#endif
