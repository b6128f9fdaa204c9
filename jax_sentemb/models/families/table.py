"""The families of encoders that can be read, trained and written."""

from pathlib import Path
from typing import Any

from jax_sentemb.errors import OTHER_MODEL, ModelFileError
from jax_sentemb.files import quote
from jax_sentemb.models.families.bert import BERT
from jax_sentemb.models.families.camembert import CAMEMBERT
from jax_sentemb.models.families.distilbert import DISTILBERT
from jax_sentemb.models.families.electra import ELECTRA
from jax_sentemb.models.families.family import Family
from jax_sentemb.models.families.modern_bert import MODERNBERT
from jax_sentemb.models.families.mpnet import MPNET
from jax_sentemb.models.families.roberta import ROBERTA, XLM_ROBERTA

ROWS = (BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, MPNET, ELECTRA, MODERNBERT)
FAMILIES = {family.model_type: family for family in ROWS}


def family_of(model_type: Any, file: Path) -> Family:
    """Return the family of a `model_type` in a file.

    Raises:
        ModelFileError: There is no such family; the message lists those that exist.
    """
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ModelFileError(f"{file}: model_type {quote(model_type)} is not one of {', '.join(FAMILIES)}; {OTHER_MODEL}")
    return FAMILIES[model_type]
