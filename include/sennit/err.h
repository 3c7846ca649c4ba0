/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ERR_H
#define SENNIT_ERR_H

#include <sennit/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * snt_err_text - the sentence that the last failing call left behind
 *
 * Every sennit call that returns a negative errno first stores one sentence, which
 * names the device, port, peer, QP or setting concerned and, where there is one, the
 * remedy. Posts are no exception: one that is refused for want of room costs no more
 * than a few stores, and its sentence is formatted when it is read. Calls that may be
 * made from signal handlers leave none, and say so. It is meant to be read right after
 * the failure; operations that fail later have snt_op_text() and snt_wc_text().
 *
 * Posting a list may succeed in part; the sentence then says why the first WR that was
 * not taken was refused.
 *
 * Ownership: the text belongs to the library and to the calling thread; it
 * stays until the next failing call in the same thread.
 * Thread: any.
 * Returns: a string, never NULL; empty if nothing has failed in this thread.
 */
SNT_API const char *snt_err_text(void);

#ifdef __cplusplus
}
#endif

#endif
