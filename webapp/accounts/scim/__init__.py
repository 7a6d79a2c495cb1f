"""SCIM 2.0 for the company's identity provider, which says who left and who is back (RFC 7643 and 7644).

Of the protocol there is what removal needs: people are found and (de)activated, none is made, renamed or
put into a group. It is there where the settings have ``SCIM_TOKEN``.
"""
