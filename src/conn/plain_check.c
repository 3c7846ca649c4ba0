/* SPDX-License-Identifier: MIT */
/* Options that a plain connection cannot have, each with the reason. */
#include <errno.h>
#include <sennit/conn.h>

#include "conn/carrier_cm.h"
#include "conn/plain.h"
#include "util/err.h"

_Static_assert(SNT_PLAIN_REQUEST_MAX == SNT__CM_REQUEST_DATA &&
		       SNT_PLAIN_ANSWER_MAX == SNT__CM_RESPONSE_DATA &&
		       SNT_PLAIN_REFUSAL_MAX == SNT__CM_REJECT_DATA,
	       "the public limits are those of connection managers");

int snt__plain_check_endpoint(const struct snt_endpoint *endpoint)
{
	if (endpoint->secret)
		return snt__fail(EINVAL,
				 "snt_endpoint.secret is set, but a plain peer cannot "
				 "prove that it knows one; use SNT_CARRIER_CM");
	if (endpoint->name)
		return snt__fail(EINVAL,
				 "snt_endpoint.name is set, but a plain peer does not "
				 "understand names; put it into snt_conn_opts.data");
	return 0;
}

int snt__plain_check_data(const char *what, size_t length, size_t max)
{
	if (length <= max)
		return 0;
	return snt__fail(EINVAL,
			 "%zu bytes of data, of which %s of a plain connection takes "
			 "%zu",
			 length, what, max);
}

static int check_qp(const struct snt_qp_opts *qp)
{
	if (!(qp->flags & SNT_QP_PASS_THROUGH))
		return snt__fail(EINVAL,
				 "a plain connection needs SNT_QP_PASS_THROUGH: its "
				 "peer obeys verbs' rules and not sennit's");
	if (qp->mtu)
		return snt__fail(EINVAL,
				 "snt_qp_opts.mtu is %u, but the connection manager "
				 "chooses the MTU of a plain connection; leave it 0",
				 qp->mtu);
	if (qp->pkey_index)
		return snt__fail(
			EINVAL,
			"snt_qp_opts.pkey_index is %u, but the address chooses "
			"the partition of a plain connection; leave it 0",
			qp->pkey_index);
	return 0;
}

int snt__plain_check_opts(const struct snt_conn_opts *opts,
			  const struct snt_qp_opts *qp, bool connects)
{
	int ret = check_qp(qp);

	if (!ret && connects && opts->meet)
		ret = snt__fail(EINVAL, "snt_conn_opts.meet is set, but a plain peer "
					"cannot agree on one of two attempts");
	if (ret)
		return ret;
	if (!connects)
		return snt__plain_check_data("an answer", opts->data_length,
					     SNT_PLAIN_ANSWER_MAX);
	if (snt__cm_is_sennits(opts->data, opts->data_length))
		return snt__fail(EINVAL,
				 "the data begins as requests of sennit's own do; "
				 "choose another beginning");
	return snt__plain_check_data("a request", opts->data_length,
				     SNT_PLAIN_REQUEST_MAX);
}
