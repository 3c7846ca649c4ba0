/* SPDX-License-Identifier: MIT */
/* Statuses of completions: their names, and what to do about each. */
#include <sennit/cq.h>

#include <infiniband/verbs.h>

static const struct {
	const char *name;
	const char *help;
} known[] = {
	[SNT_WC_SUCCESS] = { "SUCCESS", "it is done" },
	[SNT_WC_LOC_LEN_ERR] = { "LOC_LEN_ERR",
				 "a message is longer than the receive posted for it" },
	[SNT_WC_LOC_QP_OP_ERR] = { "LOC_QP_OP_ERR",
				   "the device refused the request as one that its QP "
				   "cannot execute" },
	[SNT_WC_LOC_PROT_ERR] = { "LOC_PROT_ERR",
				  "local memory is not registered, or not for this use: "
				  "check key, address and access flags" },
	[SNT_WC_FLUSHED] = { "FLUSHED",
			     "the QP was closed, or another WR failed before: the first "
			     "completion that is not a flush says why" },
	[SNT_WC_MW_BIND_ERR] = { "MW_BIND_ERR", "a memory window could not be bound" },
	[SNT_WC_BAD_RESP_ERR] = { "BAD_RESP_ERR",
				  "the peer's device sent an invalid response" },
	[SNT_WC_LOC_ACCESS_ERR] = { "LOC_ACCESS_ERR",
				    "a write of the peer had no right to its memory" },
	[SNT_WC_REM_INV_REQ_ERR] = { "REM_INV_REQ_ERR",
				     "the peer's device refused the request: check its "
				     "limits, the length of the receive, and that atomics "
				     "are aligned to 8 bytes" },
	[SNT_WC_REM_ACCESS_ERR] = { "REM_ACCESS_ERR",
				    "the key, address or right is not valid at the peer: is "
				    "the token of an earlier process, or its memory "
				    "released?" },
	[SNT_WC_REM_OP_ERR] = { "REM_OP_ERR",
				"the peer's device could not complete the request" },
	[SNT_WC_RETRY_EXC_ERR] = { "RETRY_EXC_ERR",
				   "the peer did not answer: check that its process runs, "
				   "then the path with `sennit ping`" },
	[SNT_WC_RNR_RETRY_EXC_ERR] = { "RNR_RETRY_EXC_ERR",
				       "the peer had no receive posted for too long: post "
				       "enough of them before the sender starts" },
	[SNT_WC_FATAL_ERR] = { "FATAL_ERR", "the device has failed" },
	[SNT_WC_INDETERMINATE] = { "INDETERMINATE",
				   "it may have taken effect, and will not any more: ask "
				   "the peer" },
	[SNT_WC_GENERAL_ERR] = { "GENERAL_ERR", "the device gives no reason" },
};

#define KNOWN (sizeof(known) / sizeof(*known))

const char *snt_status_text(unsigned status)
{
	return status == SNT_WC_INDETERMINATE ? "may have taken effect"
					      : ibv_wc_status_str(status);
}

const char *snt_status_name(unsigned status)
{
	return status < KNOWN ? known[status].name : NULL;
}

const char *snt_status_help(unsigned status)
{
	return status < KNOWN ? known[status].help : NULL;
}
