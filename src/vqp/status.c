/* SPDX-License-Identifier: MIT */
#include <sennit/cq.h>

#include <infiniband/verbs.h>

const char *snt_status_text(unsigned status)
{
	return ibv_wc_status_str(status);
}
