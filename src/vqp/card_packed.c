/* SPDX-License-Identifier: MIT */
/* Cards as bytes, for programs that do not look into them. */
#include <sennit/card.h>

ssize_t snt_qp_card_pack(const struct snt_qp *qp, void *buffer, size_t size)
{
	struct snt_card card;
	int ret = snt_qp_card(qp, &card);

	return ret ? ret : snt_card_pack(&card, buffer, size);
}

int snt_qp_connect_packed(struct snt_qp *qp, const void *card, size_t length)
{
	struct snt_card peer;
	int ret = snt_card_unpack(card, length, &peer);

	return ret ? ret : snt_qp_connect(qp, &peer);
}
