/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ERR_H
#define SENNIT_ERR_H

#include <sennit/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * snt_err_text - get the sentence that explains the last failed call
 *
 * Every sennit call that returns a negative errno first stores one sentence, which
 * names the device, port, peer, QP or setting concerned and, if there is one, the
 * remedy. This includes posts: a post refused for lack of room costs only a few stores,
 * since its sentence is formatted when it is read. Calls that may be made from signal
 * handlers store none, and their documentation says so. Read the sentence right after
 * the failure; operations that fail later have snt_op_text() and snt_wc_text().
 *
 * Posting a list may succeed in part; the sentence then says why the first WR that was
 * not accepted was refused.
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
