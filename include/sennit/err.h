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
 * Every sennit call that returns a negative errno and is not on the data path
 * first stores one sentence, which names the device, port, peer or setting
 * concerned and, where there is one, the remedy. It is meant to be read right
 * after the failure.
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
