"""Every way a dispute changes. One function, one transaction, one version, one audit entry."""
